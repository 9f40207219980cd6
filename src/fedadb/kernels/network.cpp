// Networks of small convolutions and linear layers, for images of any number.
//
// A vector holds the same value of LANES images, so that no channel count is too small for it. A block
// of LANES images passes through all convolutions while it is in the cache, and a chunk of a few blocks
// through all linear layers. Nothing is kept between calls, and sums have one order, so equal arguments
// give equal bits.

#include "convolution.h"
#include "linear.h"

using namespace fedadb;

namespace {

constexpr int CHUNK = 64;  // images, a multiple of LANES
constexpr int MOST_LAYERS = 32;

// A layer, and what follows it; a linear layer has no kernel, and images of one pixel.
struct Layer {
  int in, out, kernel, padding, height, width, relu, pool;  // height and width of the unpadded input

  bool linear() const { return kernel == 0; }
  int padded_height() const { return height + 2 * padding; }
  int padded_width() const { return width + 2 * padding; }
  int rows() const { return padded_height() - kernel + 1; }
  int columns() const { return padded_width() - kernel + 1; }
  int pooled_rows() const { return pool ? rows() / 2 : rows(); }
  int pooled_columns() const { return pool ? columns() / 2 : columns(); }
  int features() const { return linear() ? out : out * pooled_rows() * pooled_columns(); }
  // The zeros around the gradient of the convolution's output, for the gradient of its input.
  int border() const { return kernel - 1 - padding; }

  // Values of a block.
  size_t input_size() const {
    return (size_t)in * padded_height() * padded_width() * LANES;
  }
  size_t output_size() const { return (size_t)features() * LANES; }
  size_t gradient_size(int border) const {
    return (size_t)out * (rows() + 2 * border) * (columns() + 2 * border) * LANES;
  }
  size_t weights() const { return (size_t)in * out * (linear() ? 1 : kernel * kernel); }
  size_t padded_in() const { return (size_t)(in + LANES - 1) / LANES * LANES; }

  template <typename Number>
  View<Number> padded_input(Number* data) const {
    return View<Number>::whole(data, padded_height(), padded_width());
  }
  // Rows of the gradient that the first-level cache holds beside the pixels.
  int strip() const {
    int rows = 4096 / (GRADIENT_ROWS * columns() * LANES) / 2 * 2;
    return rows < 2 ? 2 : rows;
  }
};

struct Network {
  const Layer* layers;
  int count;

  const Layer& operator[](int i) const { return layers[i]; }
  const Layer& last() const { return layers[count - 1]; }
  int convolutions() const {
    int i = 0;
    while (i < count && !layers[i].linear()) i++;
    return i;
  }
  // What the convolutions save for a block: values of their inputs, and bytes.
  size_t block_size() const {
    size_t sum = 0;
    for (int i = 0; i < convolutions(); i++) sum += layers[i].input_size();
    return sum;
  }
  size_t block_bytes() const {
    size_t sum = 0;
    for (int i = 0; i < convolutions(); i++) sum += layers[i].output_size();
    return sum;
  }
  // The most values that one of the layers needs.
  template <typename Function>
  size_t largest(Function size) const {
    size_t most = 0;
    for (int i = 0; i < count; i++)
      if (size(layers[i]) > most) most = size(layers[i]);
    return most;
  }
};

template <typename Number>
Number* take(Number*& memory, size_t count) {
  Number* taken = memory;
  memory += count;
  return taken;
}

// The weight and the bias of each layer, which follow each other in memory.
template <typename Number>
struct Parameters {
  Number *weight[MOST_LAYERS], *bias[MOST_LAYERS];

  Parameters(const Network& net, Number* memory) {
    for (int i = 0; i < net.count; i++) {
      weight[i] = take(memory, net[i].weights());
      bias[i] = take(memory, net[i].out);
    }
  }
};

// Where each pass keeps what it needs until its end.
struct ForwardMemory {
  float *packed[MOST_LAYERS];  // weights of the convolutions
  float *features;  // of a block, after the convolutions
  float *result;  // of a chunk
  float *strip, *end;

  ForwardMemory(const Network& net, float* memory) {
    int convolutions = net.convolutions();
    for (int i = 0; i < convolutions; i++) packed[i] = take(memory, net[i].weights());
    features = take(memory, net[convolutions - 1].output_size());
    result = take(memory, (size_t)net.last().features() * CHUNK);
    strip = take(memory, net.largest([](const Layer& layer) {
      return layer.linear() ? 0 : (size_t)layer.out * 2 * layer.columns() * LANES;
    }));
    end = memory;
  }
};

struct BackwardMemory {
  float *bias[MOST_LAYERS], *sums[MOST_LAYERS];  // of the gradients
  float *bordered[MOST_LAYERS];  // gradients of the convolutions' outputs
  float *zeros_end;  // of those that are zero at the beginning
  float *flipped[MOST_LAYERS];  // weights of the convolutions
  float *block[2], *chunk[2];  // gradients between two convolutions, and two linear layers
  float *masked, *transposed;  // of the linear layer that is computed
  float *result, *result_gradient, *end;  // of a chunk

  BackwardMemory(const Network& net, float* memory) {
    for (int i = 0; i < net.count; i++) {
      const Layer& layer = net[i];
      bias[i] = take(memory, (size_t)layer.out * LANES);
      sums[i] = take(memory, layer.linear() ? layer.out * layer.padded_in() : layer.weights() * LANES);
    }
    for (int i = 0; i < net.convolutions(); i++)
      bordered[i] = take(memory, net[i].gradient_size(net[i].border()));
    zeros_end = memory;
    for (int i = 0; i < net.convolutions(); i++) flipped[i] = take(memory, net[i].weights());
    for (float*& half : block)
      half = take(memory, net.largest([](const Layer& layer) {
        size_t in = layer.input_size(), out = layer.output_size();
        return layer.linear() ? 0 : in > out ? in : out;
      }));
    for (float*& half : chunk)
      half = take(memory, net.largest([](const Layer& layer) {
        return layer.linear() ? (size_t)layer.in * CHUNK : 0;
      }));
    masked = take(memory, net.largest([](const Layer& layer) {
      return layer.linear() ? (size_t)layer.out * CHUNK : 0;
    }));
    transposed = take(memory, net.largest([](const Layer& layer) {
      return layer.linear() ? layer.padded_in() * CHUNK : 0;
    }));
    result = take(memory, (size_t)net.last().features() * CHUNK);
    result_gradient = take(memory, (size_t)net.last().features() * CHUNK);
    end = memory;
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

// The images of a block into the padded input of the first layer; lanes without an image are zero.
void enter(const Layer& layer, const float* images, int count, float* input) {
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
void convolution_forward(const Layer& layer, const float* input, const float* w, const float* bias,
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

// The gradients of a block: adds to the sums, and writes that of the input if it is asked for. The
// border of `bordered` is zero.
void convolution_backward(const Layer& layer, const float* input, View<const float> gz,
                          const uint8_t* which, const float* flipped, float* sums, float* bias,
                          float* bordered, float* gx) {
  View<const float> x = layer.padded_input(input);
  int border = gx ? layer.border() : 0;
  int height = layer.rows() + 2 * border, width = layer.columns() + 2 * border;
  auto whole = View<float>::whole(bordered, height, width);
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
void linear_forward(const Layer& layer, const float* x, const float* w, const float* bias, float* z,
                    int columns) {
  auto start = [&](int r, int) { return broadcast(bias[r]); };
  bool relu = layer.relu;
  auto finish = [relu](Lanes sum) { return relu ? (sum <= Lanes{} ? Lanes{} : sum) : sum; };
  multiply({w, (size_t)layer.in, 1}, layer.out, layer.in, x, columns, z, columns, columns, start,
           finish);
}

// The gradients of a chunk: adds to the sums (out × padded in) and to the bias's, and writes gx. Of z,
// only the signs are used; g and transposed are working memory.
void linear_backward(const Layer& layer, const float* x, const float* z, const float* gz, const float* w, float* sums, float* bias, float* g, float* transposed, float* gx,
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
  auto same = [](Lanes sum) { return sum; };
  size_t wide = layer.padded_in();
  transpose(x, columns, layer.in, columns, transposed, wide);
  auto before = [&](int r, int q) { return load(sums + r * wide + q); };
  multiply({g, (size_t)columns, 1}, layer.out, columns, transposed, wide, sums, wide, (int)wide, before,
           same);
  auto zero = [](int, int) { return Lanes{}; };
  multiply({w, 1, (size_t)layer.in}, layer.in, layer.out, g, columns, gx, columns, columns, zero, same);
}

}  // namespace

extern "C" {

// Images of a block, and of a chunk.
int fedadb_lanes() { return LANES; }
int fedadb_chunk() { return CHUNK; }

// Values of working memory that the forward pass needs, and the backward pass.
size_t fedadb_forward_work(const Layer* layers, int count) {
  return ForwardMemory({layers, count}, nullptr).end - (float*)nullptr;
}

size_t fedadb_backward_work(const Layer* layers, int count) {
  return BackwardMemory({layers, count}, nullptr).end - (float*)nullptr;
}

// x: n images; y: their features.
//
// With `which`, the backward pass can follow: saved and which then have room for all images. Otherwise
// saved has room for the convolutions of one block and the linear layers of a chunk. The padding in
// saved is zero.
void fedadb_forward(const Layer* layers, int count, const float* x, long n, const float* parameters,
                    float* saved, uint8_t* which, float* work, float* y) {
  Network net = {layers, count};
  ForwardMemory memory(net, work);
  Parameters<const float> w(net, parameters);
  int convolutions = net.convolutions();
  const Layer& first = net[0];
  size_t pixels = (size_t)first.in * first.height * first.width, features = net.last().features();
  for (int i = 0; i < convolutions; i++) pack_weights(net[i], w.weight[i], false, memory.packed[i]);
  for (long start = 0; start < n; start += CHUNK) {
    int images = (int)(n - start < CHUNK ? n - start : CHUNK);
    int columns = (images + LANES - 1) / LANES * LANES;
    float* input = saved;
    float* h = saved + (which ? columns / LANES : 1) * net.block_size();  // of the linear layers
    float* z = convolutions < count ? h : memory.result;
    for (int block = 0; block < columns; block += LANES) {
      if (!which) input = saved;
      const long image = start + block;
      enter(first, x + image * pixels, (int)(n - image < LANES ? n - image : LANES), input);
      for (int i = 0; i < convolutions; i++) {
        const Layer& layer = net[i];
        float* next = input + layer.input_size();
        auto out = View<float>::whole(memory.features, layer.pooled_rows(), layer.pooled_columns());
        if (i + 1 < convolutions)
          out = net[i + 1].padded_input(next).from(0, net[i + 1].padding, net[i + 1].padding);
        convolution_forward(layer, input, memory.packed[i], w.bias[i], memory.strip, out, which);
        if (which) which += layer.output_size();
        input = next;
      }
      for (int i = 0; i < net[convolutions - 1].features(); i++)
        store(z + (size_t)i * columns + block, load(memory.features + (size_t)i * LANES));
    }
    for (int i = convolutions; i < count; i++) {
      float* next = h + (size_t)net[i].in * columns;
      linear_forward(net[i], h, w.weight[i], w.bias[i], i + 1 < count ? next : memory.result, columns);
      h = next;
    }
    transpose(memory.result, columns, features, images, y + start * features, features);
    if (which) saved = h;
  }
}

// y: the features; g: their gradient; gx may be null.
void fedadb_backward(const Layer* layers, int count, const float* y, const float* g, long n,
                     const float* parameters, const float* saved, const uint8_t* which, float* work,
                     float* gradient, float* gx) {
  Network net = {layers, count};
  BackwardMemory memory(net, work);
  Parameters<const float> w(net, parameters);
  Parameters<float> gw(net, gradient);
  int convolutions = net.convolutions();
  const Layer& first = net[0];
  size_t pixels = (size_t)first.in * first.height * first.width, features = net.last().features();
  std::memset(work, 0, (memory.zeros_end - work) * sizeof(float));
  for (int i = 0; i < convolutions; i++) pack_weights(net[i], w.weight[i], true, memory.flipped[i]);
  for (long start = 0; start < n; start += CHUNK) {
    int images = (int)(n - start < CHUNK ? n - start : CHUNK);
    int columns = (images + LANES - 1) / LANES * LANES;
    if (images < columns)  // columns without an image must have a gradient of zero
      std::memset(memory.result, 0, (memory.end - memory.result) * sizeof(float));
    transpose(y + start * features, features, images, features, memory.result, columns);
    transpose(g + start * features, features, images, features, memory.result_gradient, columns);
    const float* input = saved;
    saved += columns / LANES * net.block_size();
    for (int i = convolutions; i < count; i++) saved += (size_t)net[i].in * columns;
    const float *h = saved, *z = memory.result, *gz = memory.result_gradient;
    for (int i = count - 1; i >= convolutions; i--) {
      h -= (size_t)net[i].in * columns;
      linear_backward(net[i], h, z, gz, w.weight[i], memory.sums[i], memory.bias[i], memory.masked,
                      memory.transposed, memory.chunk[i % 2], columns);
      z = h, gz = memory.chunk[i % 2];
    }
    for (int block = 0; block < columns; block += LANES) {
      input += net.block_size();
      which += net.block_bytes();
      const float *x = input, *incoming = memory.block[convolutions % 2];
      const uint8_t* choice = which;
      for (int i = 0; i < net[convolutions - 1].features(); i++)
        store(memory.block[convolutions % 2] + (size_t)i * LANES, load(gz + (size_t)i * columns + block));
      for (int i = convolutions - 1; i >= 0; i--) {
        const Layer& layer = net[i];
        x -= layer.input_size();
        choice -= layer.output_size();
        auto outer = View<const float>::whole(incoming, layer.pooled_rows(), layer.pooled_columns());
        float* inner = i > 0 || gx ? memory.block[i % 2] : nullptr;
        convolution_backward(layer, x, outer, choice, memory.flipped[i], memory.sums[i],
                             memory.bias[i], memory.bordered[i], inner);
        incoming = inner;
      }
      long image = start + block;
      if (gx)
        transpose(incoming, LANES, pixels, n - image < LANES ? n - image : LANES, gx + image * pixels,
                  pixels);
    }
  }
  for (int i = 0; i < count; i++) {
    const Layer& layer = net[i];
    for (int o = 0; o < layer.out; o++) gw.bias[i][o] = total(load(memory.bias[i] + (size_t)o * LANES));
    if (layer.linear())
      for (int o = 0; o < layer.out; o++)
        std::memcpy(gw.weight[i] + (size_t)o * layer.in, memory.sums[i] + o * layer.padded_in(),
                    layer.in * sizeof(float));
    else
      for (size_t k = 0; k < layer.weights(); k++) gw.weight[i][k] = total(load(memory.sums[i] + k * LANES));
  }
}

}  // extern "C"
