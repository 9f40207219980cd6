// Convolutions of one block of images with stride 1, and 2×2 max-pooling.
#pragma once

#include "lanes.h"

namespace fedadb {

// Channels × height × width vectors; rows and planes may be parts of larger ones.
template <typename Number>
struct View {
  Number* data;
  size_t row, plane;  // distances in values

  static View whole(Number* data, int height, int width) {
    return {data, (size_t)width * LANES, (size_t)height * width * LANES};
  }
  Number* at(int channel, int y, int x) const {
    return data + channel * plane + y * row + (size_t)x * LANES;
  }
  View from(int channel, int y, int x) const { return {at(channel, y, x), row, plane}; }
  operator View<const Number>() const { return {data, row, plane}; }
};

// Zeros around rows × columns vectors that begin at (top, left) of each channel.
inline void clear_around(View<float> x, int channels, int height, int width, int top, int left,
                         int rows, int columns) {
  auto clear = [](float* from, float* to) { std::memset(from, 0, (to - from) * sizeof(float)); };
  for (int c = 0; c < channels; c++)
    for (int r = 0; r < height; r++) {
      bool beside = r >= top && r < top + rows;
      clear(x.at(c, r, 0), x.at(c, r, beside ? left : width));
      if (beside) clear(x.at(c, r, left + columns), x.at(c, r, width));
    }
}

// Which of a tile's pixels are inside of an image that has a border of K - 1 zeros.
enum class Edge { none, left, right };

template <int K, int WIDE, Edge edge>
constexpr bool inside(int j, int q) {
  if (edge == Edge::left) return j + q >= K - 1;
  if (edge == Edge::right) return j + q < WIDE;
  return true;
}

// y[o] = bias[o] + Σ x[c] ∗ w[c][·][·][o] for OUT output channels and WIDE columns of one row; only
// the kernel's rows from first to last are used.
template <int K, int OUT, int WIDE, Edge edge>
inline void convolve_tile(View<const float> x, int in, const float* w, int out, const float* bias,
                          View<float> y, int first, int last) {
  Lanes sum[OUT][WIDE];
#pragma GCC unroll 8
  for (int o = 0; o < OUT; o++)
#pragma GCC unroll 8
    for (int q = 0; q < WIDE; q++) sum[o][q] = broadcast(bias ? bias[o] : 0);
  for (int c = 0; c < in; c++)
    for (int i = first; i < last; i++) {
      const float* pixels = x.at(c, i, 0);
      const float* weights = w + (size_t)(c * K + i) * K * out;
#pragma GCC unroll 8
      for (int j = 0; j < K; j++) {
        Lanes pixel[WIDE];
#pragma GCC unroll 8
        for (int q = 0; q < WIDE; q++)
          if (inside<K, WIDE, edge>(j, q)) pixel[q] = load(pixels + (size_t)(j + q) * LANES);
#pragma GCC unroll 8
        for (int o = 0; o < OUT; o++) {
          Lanes weight = broadcast(weights[j * out + o]);
#pragma GCC unroll 8
          for (int q = 0; q < WIDE; q++)
            if (inside<K, WIDE, edge>(j, q)) sum[o][q] += pixel[q] * weight;
        }
      }
    }
#pragma GCC unroll 8
  for (int o = 0; o < OUT; o++)
#pragma GCC unroll 8
    for (int q = 0; q < WIDE; q++) store(y.at(o, 0, q), sum[o][q]);
}

// A row of `columns` values; x is `width` wide, and `bordered` says that it has a border of K - 1 zeros.
template <int K, int OUT>
void convolve_row(View<const float> x, int width, int in, const float* w, int out, const float* bias,
                  View<float> y, int columns, int first, int last, bool bordered) {
  auto tile = [&](int q, auto wide, auto edge) {
    convolve_tile<K, OUT, decltype(wide)::value, decltype(edge)::value>(
        x.from(0, 0, q), in, w, out, bias, y.from(0, 0, q), first, last);
  };
  using None = std::integral_constant<Edge, Edge::none>;
  using Left = std::integral_constant<Edge, Edge::left>;
  using Right = std::integral_constant<Edge, Edge::right>;
  if (columns < COLUMNS) {
    for (int q = 0; q < columns; q++) tile(q, Size<1>{}, None{});
    return;
  }
  bordered = bordered && K > 1 && columns >= COLUMNS + K - 1;  // no tile has both edges
  for (int q = 0; q < columns; q += COLUMNS) {
    int start = q + COLUMNS <= columns ? q : columns - COLUMNS;  // the last tiles may overlap
    if (bordered && start == 0) tile(start, Size<COLUMNS>{}, Left{});
    else if (bordered && start + COLUMNS + K - 1 == width) tile(start, Size<COLUMNS>{}, Right{});
    else tile(start, Size<COLUMNS>{}, None{});
  }
}

// Row r of the convolution of x, whose outer `border` rows and columns are zero; w is
// in × K × K × out. y is the place of that row.
template <int K>
void convolve(View<const float> x, int height, int width, int in, const float* w, int out,
              const float* bias, View<float> y, int r, int columns, int border) {
  int first = border > r ? border - r : 0, beyond = r + K - (height - border);
  int last = beyond > 0 ? K - beyond : K;
  split<ROWS>(out, [&](int o, auto size) {
    convolve_row<K, decltype(size)::value>(x.from(0, r, 0), width, in, w + o, out,
                                           bias ? bias + o : nullptr, y.from(o, 0, 0), columns, first,
                                           last, border == K - 1);
  });
}

// sums[o][c][i][j] += Σ g[o][r][q] x[c][r + i][q + j] over the rows and columns of g.
template <int K>
void add_weight_gradient(View<const float> x, int in, View<const float> g, int out, int rows,
                         int columns, float* sums) {
  split<GRADIENT_ROWS>(out, [&](int start, auto size) {
    constexpr int OUT = decltype(size)::value;
    for (int c = 0; c < in; c++)
      for (int i = 0; i < K; i++) {
        float* at[OUT];
        Lanes sum[OUT][K];
#pragma GCC unroll 8
        for (int o = 0; o < OUT; o++) {
          at[o] = sums + (((size_t)(start + o) * in + c) * K + i) * K * LANES;
#pragma GCC unroll 8
          for (int j = 0; j < K; j++) sum[o][j] = load(at[o] + j * LANES);
        }
        for (int r = 0; r < rows; r++) {
          const float *pixels = x.at(c, r + i, 0), *gradients = g.at(start, r, 0);
          for (int q = 0; q < columns; q++) {
            Lanes gradient[OUT];
#pragma GCC unroll 8
            for (int o = 0; o < OUT; o++)
              gradient[o] = load(gradients + o * g.plane + (size_t)q * LANES);
#pragma GCC unroll 8
            for (int j = 0; j < K; j++) {
              Lanes pixel = load(pixels + (size_t)(q + j) * LANES);
#pragma GCC unroll 8
              for (int o = 0; o < OUT; o++) sum[o][j] += pixel * gradient[o];
            }
          }
        }
#pragma GCC unroll 8
        for (int o = 0; o < OUT; o++)
#pragma GCC unroll 8
          for (int j = 0; j < K; j++) store(at[o] + j * LANES, sum[o][j]);
      }
  });
}

// Where b is larger than a, or not a number, as torch's pooling chooses.
inline Mask larger(Lanes b, Lanes a) { return (b > a) | (b != b); }

// The largest of 2×2 pixels, and which one it was.
inline Lanes largest(const float* p, size_t row, Mask& which) {
  Lanes a = load(p), b = load(p + LANES), c = load(p + row), d = load(p + row + LANES);
  Mask right = larger(b, a), lower_right = larger(d, c);
  Lanes upper = right ? b : a, lower = lower_right ? d : c;
  Mask below = larger(lower, upper);
  which = below ? (lower_right ? Mask{} + 3 : Mask{} + 2) : (right ? Mask{} + 1 : Mask{});
  return below ? lower : upper;
}

constexpr int NONE = 4;  // ReLU made it 0

// z = ReLU and pooling of y, each if asked for. Saves which pixels the values of z came from.
template <bool save>
void finish_row(View<const float> y, int channels, bool relu, bool pool, View<float> z, int columns,
                uint8_t* which, size_t which_plane) {
  for (int o = 0; o < channels; o++)
    for (int q = 0; q < columns; q++) {
      Mask index = {};
      Lanes value = pool ? largest(y.at(o, 0, 2 * q), y.row, index) : load(y.at(o, 0, q));
      if (relu) {
        Mask off = value <= Lanes{};  // false for NaN, so that it is not lost
        value = off ? Lanes{} : value;
        index = off ? Mask{} + NONE : index;
      }
      store(z.at(o, 0, q), value);
      if (save)
        *reinterpret_cast<Bytes*>(which + o * which_plane + (size_t)q * LANES) =
            __builtin_convertvector(index, Bytes);
    }
}

// The gradient of y from that of z, and bias[o] += its sums.
inline void finish_row_gradient(View<const float> gz, int channels, bool pool, const uint8_t* which,
                                size_t which_plane, View<float> gy, int columns, float* bias) {
  for (int o = 0; o < channels; o++) {
    Lanes sum = load(bias + (size_t)o * LANES);
    for (int q = 0; q < columns; q++) {
      Lanes gradient = load(gz.at(o, 0, q));
      auto saved = *reinterpret_cast<const Bytes*>(which + o * which_plane + (size_t)q * LANES);
      Mask index = __builtin_convertvector(saved, Mask);
      gradient = index == Mask{} + NONE ? Lanes{} : gradient;
      sum += gradient;
      if (pool) {
        float* p = gy.at(o, 0, 2 * q);
        float* places[4] = {p, p + LANES, p + gy.row, p + gy.row + LANES};
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) store(places[i], index == Mask{} + i ? gradient : Lanes{});
      } else {
        store(gy.at(o, 0, q), gradient);
      }
    }
    store(bias + (size_t)o * LANES, sum);
  }
}

}  // namespace fedadb
