// The passes of one layer, over a block of images or a chunk.
#pragma once

#include "linear.h"
#include "network.h"

namespace fedadb {

template <typename Function>
void with_kernel(int kernel, Function function) {
  switch (kernel) {
    case 1: return function(Size<1>{});
    case 3: return function(Size<3>{});
    case 5: return function(Size<5>{});
    default: return function(Size<7>{});
  }
}

// w as in × K × K × out, or with both ends exchanged and the kernel flipped.
inline void pack_weights(const Layer& layer, const float* w, bool flipped, float* packed) {
  int kk = layer.kernel * layer.kernel;
  for (int o = 0; o < layer.out; o++)
    for (int c = 0; c < layer.in; c++)
      for (int k = 0; k < kk; k++) {
        float value = w[((size_t)o * layer.in + c) * kk + k];
        if (flipped) packed[((size_t)o * kk + kk - 1 - k) * layer.in + c] = value;
        else packed[((size_t)c * kk + k) * layer.out + o] = value;
      }
}

// The images of a block into the padded input of the first layer; lanes without an image are zero.
inline void enter(const Layer& layer, const float* images, int count, float* input) {
  size_t pixels = (size_t)layer.in * layer.height * layer.width;
  auto padded = layer.padded_input(input);
  if (count < LANES) std::memset(input, 0, layer.input_size() * sizeof(float));
  if (!layer.padding) return transpose(images, pixels, count, pixels, input, LANES);
  for (int c = 0; c < layer.in; c++)
    for (int r = 0; r < layer.height; r++)
      transpose(images + (size_t)(c * layer.height + r) * layer.width, pixels, count, layer.width,
                padded.at(c, r + layer.padding, layer.padding), LANES);
}

// z = the convolution of input, with what follows it; which may be null.
inline void convolution_forward(const Layer& layer, const float* input, const float* w, const float* bias,
                         float* work, View<float> z, uint8_t* which) {
  View<const float> x = layer.padded_input(input);
  int step = layer.pool ? 2 : 1, columns = layer.pooled_columns() * step;
  auto strip = View<float>::whole(work, step, columns);
  size_t row = (size_t)layer.pooled_columns() * LANES, plane = layer.pooled_rows() * row;
  with_kernel(layer.kernel, [&](auto size) {
    for (int r = 0; r < layer.pooled_rows(); r++) {
      for (int i = 0; i < step; i++)
        convolve<decltype(size)::value>(x, layer.padded_height(), layer.padded_width(), layer.in, w,
                                        layer.out, bias, strip.from(0, i, 0), r * step + i, columns,
                                        layer.padding);
      auto out = z.from(0, r, 0);
      if (which)
        finish_row<true>(strip, layer.out, layer.relu, layer.pool, out, layer.pooled_columns(),
                         which + r * row, plane);
      else
        finish_row<false>(strip, layer.out, layer.relu, layer.pool, out, layer.pooled_columns(),
                          nullptr, 0);
    }
  });
}

// Where the gradient of a convolution's output stands: it has a border if that of the input is needed.
inline View<float> bordered_view(const Layer& layer, bool border, float* bordered) {
  int sides = border ? 2 * layer.border() : 0;
  return View<float>::whole(bordered, layer.rows() + sides, layer.columns() + sides);
}

// Zeros where `convolution_backward` writes no gradient: the border, and what pooling leaves out.
inline void clear_border(const Layer& layer, bool border, float* bordered) {
  int side = border ? layer.border() : 0, step = layer.pool ? 2 : 1;
  clear_around(bordered_view(layer, border, bordered), layer.out, layer.rows() + 2 * side,
               layer.columns() + 2 * side, side, side, layer.pooled_rows() * step,
               layer.pooled_columns() * step);
}

// The gradients of a block: adds to the sums, and writes gx; each may be null.
// `clear_border` has prepared `bordered`.
inline void convolution_backward(const Layer& layer, const float* input, View<const float> gz,
                          const uint8_t* which, const float* flipped, float* sums, float* bias,
                          float* bordered, float* gx) {
  View<const float> x = layer.padded_input(input);
  int border = gx ? layer.border() : 0;
  int height = layer.rows() + 2 * border, width = layer.columns() + 2 * border;
  auto whole = bordered_view(layer, gx, bordered);
  auto gy = whole.from(0, border, border);
  int step = layer.pool ? 2 : 1, strip = layer.strip();
  size_t row = (size_t)layer.pooled_columns() * LANES, plane = layer.pooled_rows() * row;
  with_kernel(layer.kernel, [&](auto size) {
    constexpr int K = decltype(size)::value;
    int end = layer.pooled_rows() * step;
    for (int r = 0; r < end; r += strip) {
      int rows = end - r < strip ? end - r : strip;
      for (int i = r; i < r + rows; i += step)
        finish_row_gradient(gz.from(0, i / step, 0), layer.out, layer.pool, which + i / step * row,
                            plane, gy.from(0, i, 0), layer.pooled_columns(), bias);
      if (sums)
        add_weight_gradient<K>(x.from(0, r, 0), layer.in, gy.from(0, r, 0), layer.out, rows,
                               layer.pooled_columns() * step, sums);
    }
    if (!gx) return;
    auto out = View<float>::whole(gx, layer.height, layer.width);
    for (int r = 0; r < layer.height; r++)
      convolve<K>(whole, height, width, layer.out, flipped, layer.in, nullptr, out.from(0, r, 0), r,
                  layer.width, border);
  });
}

// z = w x + bias, and ReLU if asked for.
inline void linear_forward(const Layer& layer, const float* x, const float* w, const float* bias, float* z,
                    int columns) {
  auto start = [&](int r, int) { return broadcast(bias[r]); };
  bool relu = layer.relu;
  auto finish = [relu](Lanes sum, int, int) { return relu ? (sum <= Lanes{} ? Lanes{} : sum) : sum; };
  multiply({w, (size_t)layer.in, 1}, layer.out, layer.in, x, columns, z, columns, columns, start,
           finish);
}

// The gradients of a chunk: adds to the sums (out × padded in), which may be null, and to the bias's,
// and writes gx. Of z, only the signs are used; g and transposed are working memory.
inline void linear_backward(const Layer& layer, const float* x, const float* z, const float* gz,
                     const float* w, float* sums, float* bias, float* g, float* transposed, float* gx,
                     int columns) {
  for (int o = 0; o < layer.out; o++) {
    Lanes sum = load(bias + (size_t)o * LANES);
    for (int q = 0; q < columns; q += LANES) {
      Lanes gradient = load(gz + (size_t)o * columns + q);
      if (layer.relu) gradient = load(z + (size_t)o * columns + q) <= Lanes{} ? Lanes{} : gradient;
      store(g + (size_t)o * columns + q, gradient);
      sum += gradient;
    }
    store(bias + (size_t)o * LANES, sum);
  }
  auto same = [](Lanes sum, int, int) { return sum; };
  if (sums) {
    size_t wide = layer.padded_in();
    transpose(x, columns, layer.in, columns, transposed, wide);
    auto before = [&](int r, int q) { return load(sums + r * wide + q); };
    multiply({g, (size_t)columns, 1}, layer.out, columns, transposed, wide, sums, wide, (int)wide,
             before, same);
  }
  auto zero = [](int, int) { return Lanes{}; };
  multiply({w, 1, (size_t)layer.in}, layer.in, layer.out, g, columns, gx, columns, columns, zero, same);
}

}  // namespace fedadb
