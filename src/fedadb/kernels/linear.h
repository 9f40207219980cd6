// Linear layers. The vectors of a few blocks of images lie side by side: features × columns.
#pragma once

#include "lanes.h"

namespace fedadb {

// A matrix whose rows, or columns, are contiguous.
struct Matrix {
  const float* data;
  size_t row, column;  // distances in values
};

template <int HEIGHT, int WIDE>
inline void product_tile(Matrix a, int depth, const float* b, size_t b_row, Lanes (&sum)[HEIGHT][WIDE]) {
  for (int k = 0; k < depth; k++) {
    Lanes value[WIDE];
#pragma GCC unroll 8
    for (int q = 0; q < WIDE; q++) value[q] = load(b + k * b_row + (size_t)q * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < HEIGHT; r++) {
      Lanes weight = broadcast(a.data[r * a.row + k * a.column]);
#pragma GCC unroll 8
      for (int q = 0; q < WIDE; q++) sum[r][q] += value[q] * weight;
    }
  }
}

// c = a b; the rows of b and c have `columns` values, a multiple of LANES. The sums start at
// start(row, column) and become finish(sum, row, column).
template <typename Start, typename Finish>
void multiply(Matrix a, int rows, int depth, const float* b, size_t b_row, float* c, size_t c_row,
              int columns, Start start, Finish finish) {
  auto part = [&](int q, auto wide) {
    constexpr int WIDE = decltype(wide)::value;
    split<ROWS>(rows, [&](int r, auto height) {
      constexpr int HEIGHT = decltype(height)::value;
      Lanes sum[HEIGHT][WIDE];
#pragma GCC unroll 8
      for (int i = 0; i < HEIGHT; i++)
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; j++) sum[i][j] = start(r + i, q + j * LANES);
      product_tile<HEIGHT, WIDE>({a.data + r * a.row, a.row, a.column}, depth, b + q, b_row, sum);
#pragma GCC unroll 8
      for (int i = 0; i < HEIGHT; i++)
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; j++)
          store(c + (r + i) * c_row + q + j * LANES, finish(sum[i][j], r + i, q + j * LANES));
    });
  };
  int q = 0;
  for (; q + COLUMNS * LANES <= columns; q += COLUMNS * LANES) part(q, Size<COLUMNS>{});
  for (; q + 2 * LANES <= columns; q += 2 * LANES) part(q, Size<2>{});
  for (; q < columns; q += LANES) part(q, Size<1>{});
}

}  // namespace fedadb
