// Convolutions with few channels, for networks of convolutions and 2×2 max-poolings.
//
// A vector holds the same value of LANES images, so that no channel count is too small for it. Images
// are processed in blocks of LANES: one block passes through the whole network while it is in the cache.
// Nothing is kept between calls, and sums have one order, so equal arguments give equal bits.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace {

constexpr int LANES = 16;
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint8_t Bytes __attribute__((vector_size(LANES), aligned(1)));

// The tile of sums that the registers hold: columns × output channels, and for gradients of weights
// output channels × the columns of a kernel.
#if defined(__AVX512F__)  // 32 registers, a vector each
constexpr int COLUMNS = 4, CHANNELS = 6, GRADIENT_CHANNELS = 4;
#else  // at most 32 registers, of which 2 or 4 make a vector
constexpr int COLUMNS = 1, CHANNELS = 6, GRADIENT_CHANNELS = 1;
#endif

inline Lanes load(const float* p) { return *reinterpret_cast<const Lanes*>(p); }
inline void store(float* p, Lanes v) { *reinterpret_cast<Lanes*>(p) = v; }
inline Lanes broadcast(float s) { return s - Lanes{}; }

inline float total(Lanes v) {
  float sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += v[lane];
  return sum;
}

// Channels × height × width × LANES values; rows and planes may be parts of larger ones.
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
};

template <int Value>
using Size = std::integral_constant<int, Value>;

// y[o] = bias[o] + Σ x[c] ∗ w[c][·][·][o] for OUT output channels and WIDE columns.
template <int K, int OUT, int WIDE>
inline void tile(const float* x, size_t row, size_t plane, int in, const float* w, int out,
                 const float* bias, float* y, size_t y_plane, int first, int last) {
  Lanes sum[OUT][WIDE];
#pragma GCC unroll 8
  for (int o = 0; o < OUT; o++)
#pragma GCC unroll 8
    for (int q = 0; q < WIDE; q++) sum[o][q] = broadcast(bias ? bias[o] : 0);
  for (int c = 0; c < in; c++)
    for (int i = first; i < last; i++) {
      const float* pixels = x + c * plane + i * row;
      const float* weights = w + (size_t)(c * K + i) * K * out;
#pragma GCC unroll 8
      for (int j = 0; j < K; j++) {
        Lanes pixel[WIDE];
#pragma GCC unroll 8
        for (int q = 0; q < WIDE; q++) pixel[q] = load(pixels + (size_t)(j + q) * LANES);
#pragma GCC unroll 8
        for (int o = 0; o < OUT; o++) {
          Lanes weight = broadcast(weights[j * out + o]);
#pragma GCC unroll 8
          for (int q = 0; q < WIDE; q++) sum[o][q] += pixel[q] * weight;
        }
      }
    }
#pragma GCC unroll 8
  for (int o = 0; o < OUT; o++)
#pragma GCC unroll 8
    for (int q = 0; q < WIDE; q++) store(y + o * y_plane + (size_t)q * LANES, sum[o][q]);
}

// The first and last `border` rows of x are zero, so they are left out.
template <int K, int OUT>
void convolve_channels(View<const float> x, int in, const float* w, int out, const float* bias,
                       View<float> y, int rows, int columns, int border) {
  int height = rows + K - 1;
  for (int r = 0; r < rows; r++) {
    int first = border > r ? border - r : 0, beyond = r + K - (height - border);
    int last = beyond > 0 ? K - beyond : K, q = 0;
    for (; q + COLUMNS <= columns; q += COLUMNS)
      tile<K, OUT, COLUMNS>(x.at(0, r, q), x.row, x.plane, in, w, out, bias, y.at(0, r, q), y.plane,
                            first, last);
    for (; q < columns; q++)
      tile<K, OUT, 1>(x.at(0, r, q), x.row, x.plane, in, w, out, bias, y.at(0, r, q), y.plane, first,
                      last);
  }
}

// A convolution without padding, of an x whose outer `border` rows are zero; w is in × K × K × out.
template <int K>
void convolve(View<const float> x, int in, const float* w, int out, const float* bias, View<float> y,
              int rows, int columns, int border) {
  int o = 0;
  auto next = [&](auto size) {
    View<float> part = {y.at(o, 0, 0), y.row, y.plane};
    convolve_channels<K, decltype(size)::value>(x, in, w + o, out, bias ? bias + o : nullptr, part,
                                                rows, columns, border);
    o += size;
  };
  while (o < out) {  // parts of 6, 5 and 4 channels, as few as possible
    int left = out - o;
    if (left % CHANNELS == 0 || left > 10) next(Size<CHANNELS>{});
    else if (left % 5 == 0 || left == 9) next(Size<5>{});
    else if (left >= 4) next(Size<4>{});
    else if (left == 3) next(Size<3>{});
    else if (left == 2) next(Size<2>{});
    else next(Size<1>{});
  }
}

template <int K, int OUT>
void weight_gradient_channels(View<const float> x, int in, View<const float> g, float* gw, int rows,
                              int columns) {
  for (int c = 0; c < in; c++)
    for (int i = 0; i < K; i++) {
      Lanes sum[OUT][K] = {};
      for (int r = 0; r < rows; r++) {
        const float *pixels = x.at(c, r + i, 0), *gradients = g.at(0, r, 0);
        for (int q = 0; q < columns; q++) {
          Lanes gradient[OUT];
#pragma GCC unroll 8
          for (int o = 0; o < OUT; o++) gradient[o] = load(gradients + o * g.plane + (size_t)q * LANES);
#pragma GCC unroll 8
          for (int j = 0; j < K; j++) {
            Lanes pixel = load(pixels + (size_t)(q + j) * LANES);
#pragma GCC unroll 8
            for (int o = 0; o < OUT; o++) sum[o][j] += pixel * gradient[o];
          }
        }
      }
      for (int o = 0; o < OUT; o++)
        for (int j = 0; j < K; j++) gw[((size_t)(o * in + c) * K + i) * K + j] += total(sum[o][j]);
    }
}

// gw[o][c] += x[c] ⋆ g[o], and gb[o] += Σ g[o].
template <int K>
void weight_gradient(View<const float> x, int in, View<const float> g, int out, float* gw, float* gb,
                     int rows, int columns) {
  int o = 0;
  for (; o + GRADIENT_CHANNELS <= out; o += GRADIENT_CHANNELS)
    weight_gradient_channels<K, GRADIENT_CHANNELS>(x, in, {g.at(o, 0, 0), g.row, g.plane},
                                                   gw + (size_t)o * in * K * K, rows, columns);
  for (; o < out; o++)
    weight_gradient_channels<K, 1>(x, in, {g.at(o, 0, 0), g.row, g.plane},
                                   gw + (size_t)o * in * K * K, rows, columns);
  for (o = 0; o < out; o++) {
    Lanes sum = {};
    for (int r = 0; r < rows; r++)
      for (int q = 0; q < columns; q++) sum += load(g.at(o, r, q));
    gb[o] += total(sum);
  }
}

// One layer: a convolution, and what follows it.
struct Layer {
  int in, out, kernel, padding, height, width, relu, pool;  // height and width of the unpadded input

  int rows() const { return height + 2 * padding - kernel + 1; }
  int columns() const { return width + 2 * padding - kernel + 1; }
  int pooled_rows() const { return pool ? rows() / 2 : rows(); }
  int pooled_columns() const { return pool ? columns() / 2 : columns(); }
  size_t input_size() const {
    return (size_t)in * (height + 2 * padding) * (width + 2 * padding) * LANES;
  }
  size_t conv_size() const { return (size_t)out * rows() * columns() * LANES; }
  size_t output_size() const { return (size_t)out * pooled_rows() * pooled_columns() * LANES; }
  // The gradient of the convolution's output, with a border for the gradient of its input.
  int border() const { return kernel - 1 - padding; }
  size_t gradient_size() const {
    return (size_t)out * (rows() + 2 * border()) * (columns() + 2 * border()) * LANES;
  }
  template <typename Number>
  View<Number> padded_input(Number* data) const {
    return View<Number>::whole(data, height + 2 * padding, width + 2 * padding);
  }
  template <typename Number>
  View<Number> inner_gradient(Number* data) const {
    auto all = View<Number>::whole(data, rows() + 2 * border(), columns() + 2 * border());
    return {all.at(0, border(), border()), all.row, all.plane};
  }
};

template <typename Function>
void with_kernel(int kernel, Function function) {
  switch (kernel) {
    case 1: return function(Size<1>{});
    case 3: return function(Size<3>{});
    case 5: return function(Size<5>{});
    default: return function(Size<7>{});
  }
}

// The largest of each 2×2 pixels, and which one it was; 4: none, because ReLU made it 0.
inline void pool(const float* p, size_t row, int relu, float* largest, uint8_t* which) {
  Lanes best = load(p);
  Mask index = {};
  const float* others[3] = {p + LANES, p + row, p + row + LANES};
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) {
    Lanes other = load(others[i]);
    Mask larger = other > best;
    best = larger ? other : best;
    index = larger ? Mask{} + (i + 1) : index;
  }
  if (relu) {
    Mask positive = best > Lanes{};
    best = positive ? best : Lanes{};
    index = positive ? index : Mask{} + 4;
  }
  store(largest, best);
  *reinterpret_cast<Bytes*>(which) = __builtin_convertvector(index, Bytes);
}

// After the convolution y: ReLU and pooling into z.
void finish(const Layer& layer, View<const float> y, View<float> z, uint8_t* which) {
  for (int o = 0; o < layer.out; o++)
    for (int r = 0; r < layer.pooled_rows(); r++)
      for (int q = 0; q < layer.pooled_columns(); q++) {
        if (layer.pool) {
          pool(y.at(o, 2 * r, 2 * q), y.row, layer.relu, z.at(o, r, q), which);
        } else {
          Lanes value = load(y.at(o, r, q));
          Mask positive = value > Lanes{};
          if (layer.relu) value = positive ? value : Lanes{};
          store(z.at(o, r, q), value);
          Mask index = positive ? Mask{} : Mask{} + (layer.relu ? 4 : 0);
          *reinterpret_cast<Bytes*>(which) = __builtin_convertvector(index, Bytes);
        }
        which += LANES;
      }
}

// The gradient of the convolution's output from that of the layer's output.
void start_backward(const Layer& layer, View<const float> gz, const uint8_t* which, View<float> gy) {
  for (int o = 0; o < layer.out; o++)
    for (int r = 0; r < layer.pooled_rows(); r++)
      for (int q = 0; q < layer.pooled_columns(); q++) {
        Lanes gradient = load(gz.at(o, r, q));
        Mask index = __builtin_convertvector(*reinterpret_cast<const Bytes*>(which), Mask);
        which += LANES;
        if (layer.pool) {
          float* p = gy.at(o, 2 * r, 2 * q);
          float* places[4] = {p, p + LANES, p + gy.row, p + gy.row + LANES};
#pragma GCC unroll 4
          for (int i = 0; i < 4; i++) store(places[i], index == Mask{} + i ? gradient : Lanes{});
        } else {
          store(gy.at(o, r, q), index == Mask{} ? gradient : Lanes{});
        }
      }
}

// w as in × K × K × out, or with both ends exchanged and the kernel flipped.
void pack_weights(const Layer& layer, const float* w, bool flipped, float* packed) {
  int kk = layer.kernel * layer.kernel;
  for (int o = 0; o < layer.out; o++)
    for (int c = 0; c < layer.in; c++)
      for (int k = 0; k < kk; k++) {
        float value = w[((size_t)o * layer.in + c) * kk + k];
        if (flipped) packed[((size_t)o * kk + kk - 1 - k) * layer.in + c] = value;
        else packed[((size_t)c * kk + k) * layer.out + o] = value;
      }
}

template <typename Number>
Number* take(Number*& memory, size_t count) {
  Number* taken = memory;
  memory += count;
  return taken;
}

size_t weights_size(const Layer& layer) {
  return (size_t)layer.in * layer.out * layer.kernel * layer.kernel;
}

}  // namespace

extern "C" {

int fedadb_lanes() { return LANES; }

// Values that the forward pass saves for each block, and bytes.
size_t fedadb_saved_values(const Layer* layers, int count) {
  size_t sum = 0;
  for (int i = 0; i < count; i++) sum += layers[i].input_size();
  return sum;
}

size_t fedadb_saved_bytes(const Layer* layers, int count) {
  size_t sum = 0;
  for (int i = 0; i < count; i++) sum += layers[i].output_size();
  return sum;
}

// Values of working memory that either pass needs.
size_t fedadb_work(const Layer* layers, int count) {
  size_t weights = 0, largest = 0;
  for (int i = 0; i < count; i++) {
    weights += weights_size(layers[i]);
    size_t gradients = layers[i].gradient_size() + layers[i].output_size() + layers[i].input_size();
    if (gradients > largest) largest = gradients;
  }
  return weights + 2 * largest;
}

// x: n images; saved and which: zeros on entry, what the backward pass needs on exit; y: features ×
// (blocks × LANES).
void fedadb_forward(const Layer* layers, int count, const float* x, long n, const float* const* weights,
                    const float* const* biases, float* saved, uint8_t* which, float* work, float* y) {
  const Layer& first = layers[0];
  long blocks = (n + LANES - 1) / LANES;
  size_t pixels = (size_t)first.in * first.height * first.width;
  float* packed = work;
  for (int i = 0; i < count; i++)
    pack_weights(layers[i], weights[i], false, take(work, weights_size(layers[i])));
  for (long block = 0; block < blocks; block++) {
    int used = (int)(n - block * LANES < LANES ? n - block * LANES : LANES);
    auto input = first.padded_input(saved);
    for (int c = 0; c < first.in; c++)
      for (int r = 0; r < first.height; r++) {
        float* row = input.at(c, r + first.padding, first.padding);
        const float* images = x + block * LANES * pixels + (size_t)(c * first.height + r) * first.width;
        for (int lane = 0; lane < used; lane++)
          for (int q = 0; q < first.width; q++) row[(size_t)q * LANES + lane] = images[lane * pixels + q];
      }
    const float* w = packed;
    for (int i = 0; i < count; i++) {
      const Layer& layer = layers[i];
      View<const float> in = layer.padded_input((const float*)take(saved, layer.input_size()));
      auto conv = View<float>::whole(work, layer.rows(), layer.columns());
      with_kernel(layer.kernel, [&](auto size) {
        convolve<decltype(size)::value>(in, layer.in, w, layer.out, biases[i], conv, layer.rows(),
                                        layer.columns(), layer.padding);
      });
      w += weights_size(layer);
      View<const float> result = {conv.data, conv.row, conv.plane};
      if (i + 1 < count) {
        const Layer& next = layers[i + 1];
        auto padded = next.padded_input(saved);
        finish(layer, result, {padded.at(0, next.padding, next.padding), padded.row, padded.plane},
               which);
      } else {
        float* features = work + layer.conv_size();
        finish(layer, result,
               View<float>::whole(features, layer.pooled_rows(), layer.pooled_columns()), which);
        for (size_t i = 0; i < layer.output_size() / LANES; i++)
          store(y + (i * blocks + block) * LANES, load(features + i * LANES));
      }
      which += layer.output_size();
    }
  }
}

// g: features × (blocks × LANES), zero for lanes without an image. Adds to gw and gb; gx may be null.
void fedadb_backward(const Layer* layers, int count, const float* g, long n,
                     const float* const* weights, const float* saved, const uint8_t* which,
                     float* work, float* const* gw, float* const* gb, float* gx) {
  const Layer& first = layers[0];
  const Layer& last = layers[count - 1];
  long blocks = (n + LANES - 1) / LANES;
  size_t saved_values = fedadb_saved_values(layers, count), saved_bytes = fedadb_saved_bytes(layers, count);
  float* packed = work;
  size_t largest = 0;
  for (int i = 0; i < count; i++) {
    pack_weights(layers[i], weights[i], true, take(work, weights_size(layers[i])));
    size_t size = layers[i].gradient_size() + layers[i].output_size() + layers[i].input_size();
    if (size > largest) largest = size;
  }
  float* halves[2] = {work, work + largest};
  for (long block = 0; block < blocks; block++) {
    const float* input = saved + (block + 1) * saved_values;
    const uint8_t* choice = which + (block + 1) * saved_bytes;
    const float* w = packed;
    for (int i = 0; i < count; i++) w += weights_size(layers[i]);
    float* incoming = halves[count % 2];
    for (size_t i = 0; i < last.output_size() / LANES; i++)
      store(incoming + i * LANES, load(g + (i * blocks + block) * LANES));
    for (int i = count - 1; i >= 0; i--) {
      const Layer& layer = layers[i];
      input -= layer.input_size();
      choice -= layer.output_size();
      w -= weights_size(layer);
      float* memory = halves[i % 2];
      float* bordered = take(memory, layer.gradient_size());
      std::memset(bordered, 0, layer.gradient_size() * sizeof(float));
      auto inner = layer.inner_gradient(bordered);
      View<const float> gz = View<const float>::whole(incoming, layer.pooled_rows(), layer.pooled_columns());
      start_backward(layer, gz, choice, inner);
      View<const float> gy = {inner.data, inner.row, inner.plane};
      View<const float> x = layer.padded_input(input);
      with_kernel(layer.kernel, [&](auto size) {
        constexpr int K = decltype(size)::value;
        weight_gradient<K>(x, layer.in, gy, layer.out, gw[i], gb[i], layer.rows(), layer.columns());
        if (i > 0 || gx) {
          View<const float> whole = View<const float>::whole(bordered, layer.rows() + 2 * layer.border(), layer.columns() + 2 * layer.border());
          auto out = View<float>::whole(memory, layer.height, layer.width);
          convolve<K>(whole, layer.out, w, layer.in, nullptr, out, layer.height, layer.width,
                      layer.border());
        }
      });
      incoming = memory;
    }
    if (gx) {
      size_t pixels = (size_t)first.in * first.height * first.width;
      for (int lane = 0; lane < LANES && block * LANES + lane < n; lane++)
        for (size_t pixel = 0; pixel < pixels; pixel++)
          gx[(block * LANES + lane) * pixels + pixel] = incoming[pixel * LANES + lane];
    }
  }
}

}  // extern "C"
