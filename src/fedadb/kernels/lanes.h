// Vectors of one value of LANES images, and how images enter and leave them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace fedadb {

// A vector fills a register. The registers hold a tile of sums, rows of weights × columns of vectors,
// and what is multiplied; GRADIENT_ROWS is for gradients of weights, where a kernel's row is a column.
constexpr int ROWS = 6;
#if defined(__AVX512F__)  // 32 registers
constexpr int LANES = 16, COLUMNS = 4, GRADIENT_ROWS = 4;
#elif defined(__AVX__)  // 16 registers
constexpr int LANES = 8, COLUMNS = 2, GRADIENT_ROWS = 2;
#elif defined(__aarch64__)  // 32 registers
constexpr int LANES = 4, COLUMNS = 4, GRADIENT_ROWS = 4;
#else
constexpr int LANES = 4, COLUMNS = 2, GRADIENT_ROWS = 2;
#endif
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint8_t Bytes __attribute__((vector_size(LANES), aligned(1)));

inline Lanes load(const float* p) { return *reinterpret_cast<const Lanes*>(p); }
inline void store(float* p, Lanes v) { *reinterpret_cast<Lanes*>(p) = v; }
inline Lanes broadcast(float s) { return s - Lanes{}; }

inline float total(Lanes v) {
  float sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += v[lane];
  return sum;
}

// Memory that is handed out in parts; without a beginning, it only counts.
struct Memory {
  float* begin;
  size_t used = 0;

  float* take(size_t count) {
    float* part = begin ? begin + used : nullptr;
    used += count;
    return part;
  }
};

template <int Value>
using Size = std::integral_constant<int, Value>;

// Calls function(Size<size>) for a size between 1 and Most.
template <int Most, typename Function>
inline void with_size(int size, Function function) {
  if constexpr (Most > 1) {
    if (size < Most) return with_size<Most - 1>(size, function);
  }
  function(Size<Most>{});
}

// Calls function(start, Size<size>) for the parts of count, as equal as possible and at most Most.
template <int Most, typename Function>
inline void split(int count, Function function) {
  int parts = (count + Most - 1) / Most, start = 0;
  for (int part = 0; part < parts; part++) {
    int size = count / parts + (part < count % parts);
    with_size<Most>(size, [&](auto fixed) { function(start, fixed); });
    start += size;
  }
}

inline Lanes choose(Lanes a, Lanes b, Mask from) {  // from[i] < LANES: a's value, otherwise b's
#if defined(__clang__)
  Lanes chosen;
  for (int i = 0; i < LANES; i++) chosen[i] = from[i] < LANES ? a[from[i]] : b[from[i] - LANES];
  return chosen;
#else
  return __builtin_shuffle(a, b, from);
#endif
}

// Exchanges the blocks of Side × Side values that lie above and below the diagonal.
template <int Side>
inline void exchange(Lanes* rows) {
  Mask first, second;
  for (int i = 0; i < LANES; i++) {
    first[i] = i & Side ? i - Side + LANES : i;
    second[i] = i & Side ? i + LANES : i + Side;
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++)
    if (!(i & Side)) {
      Lanes a = rows[i], b = rows[i + Side];
      rows[i] = choose(a, b, first);
      rows[i + Side] = choose(a, b, second);
    }
}

inline void transpose_square(Lanes* rows) {
  exchange<1>(rows);
  exchange<2>(rows);
  if constexpr (LANES > 4) exchange<4>(rows);
  if constexpr (LANES > 8) exchange<8>(rows);
}

// to[q][r] = from[r][q]; the distances are those between rows, in values.
inline void transpose(const float* from, size_t from_row, size_t rows, size_t columns, float* to,
                      size_t to_row) {
  for (size_t r = 0; r < rows; r += LANES)
    for (size_t q = 0; q < columns; q += LANES) {
      size_t height = rows - r < LANES ? rows - r : LANES;
      size_t width = columns - q < LANES ? columns - q : LANES;
      Lanes tile[LANES];
      if (height == LANES && width == LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) tile[i] = load(from + (r + i) * from_row + q);
      } else {
        std::memset(tile, 0, sizeof tile);
        for (size_t i = 0; i < height; i++)
          std::memcpy(&tile[i], from + (r + i) * from_row + q, width * sizeof(float));
      }
      transpose_square(tile);
      if (height == LANES && width == LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) store(to + (q + i) * to_row + r, tile[i]);
      } else {
        for (size_t i = 0; i < width; i++)
          std::memcpy(to + (q + i) * to_row + r, &tile[i], height * sizeof(float));
      }
    }
}

}  // namespace fedadb
