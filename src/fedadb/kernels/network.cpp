// Networks of small convolutions and linear layers, for any number of images.
//
// A vector holds the same value of LANES images, so that no channel count is too small for it. A block
// of LANES images passes through all convolutions while it is in the cache, and a chunk of a few blocks
// through all linear layers. Nothing is kept between calls, and sums have one order, so equal arguments
// give equal bits. Convolutions of many channels are in winograd.h.

#include "passes.h"
#include "winograd.h"

using namespace fedadb;

extern "C" {

// Images of a block, and of a chunk.
int fedadb_lanes() { return LANES; }
int fedadb_chunk() { return CHUNK; }

// Values of working memory that the forward pass needs, and the backward pass.
size_t fedadb_forward_work(const Layer* layers, int count) {
  return ForwardMemory({layers, count}, nullptr).size;
}

size_t fedadb_backward_work(const Layer* layers, int count) {
  return BackwardMemory({layers, count}, nullptr).size;
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
  size_t pixels = net.pixels(), features = net.last().features();
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
      enter(net[0], x + image * pixels, (int)(n - image < LANES ? n - image : LANES), input);
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

// y: the features; g: their gradient. The gradients of the parameters and of x may be null.
void fedadb_backward(const Layer* layers, int count, const float* y, const float* g, long n,
                     const float* parameters, const float* saved, const uint8_t* which, float* work,
                     float* gradient, float* gx) {
  Network net = {layers, count};
  BackwardMemory memory(net, work);
  Parameters<const float> w(net, parameters);
  int convolutions = net.convolutions();
  size_t pixels = net.pixels(), features = net.last().features();
  std::memset(work, 0, (gradient ? memory.both : memory.biases) * sizeof(float));
  for (int i = 0; i < convolutions; i++) {
    pack_weights(net[i], w.weight[i], true, memory.flipped[i]);
    clear_border(net[i], i > 0 || gx, memory.bordered[i]);
  }
  for (long start = 0; start < n; start += CHUNK) {
    int images = (int)(n - start < CHUNK ? n - start : CHUNK);
    int columns = (images + LANES - 1) / LANES * LANES;
    if (images < columns) {  // columns without an image must have a gradient of zero
      std::memset(memory.result, 0, features * columns * sizeof(float));
      std::memset(memory.result_gradient, 0, features * columns * sizeof(float));
    }
    transpose(y + start * features, features, images, features, memory.result, columns);
    transpose(g + start * features, features, images, features, memory.result_gradient, columns);
    const float* input = saved;
    saved += columns / LANES * net.block_size();
    for (int i = convolutions; i < count; i++) saved += (size_t)net[i].in * columns;
    const float *h = saved, *z = memory.result, *gz = memory.result_gradient;
    for (int i = count - 1; i >= convolutions; i--) {
      h -= (size_t)net[i].in * columns;
      linear_backward(net[i], h, z, gz, w.weight[i], gradient ? memory.sums[i] : nullptr,
                      memory.bias[i], memory.masked, memory.transposed, memory.chunk[i % 2], columns);
      z = h, gz = memory.chunk[i % 2];
    }
    for (int block = 0; block < columns; block += LANES) {
      input += net.block_size();
      which += net.block_bytes();
      const float *x = input, *incoming = memory.block[convolutions % 2];
      const uint8_t* choice = which;
      for (int i = 0; i < net[convolutions - 1].features(); i++)
        store(memory.block[convolutions % 2] + (size_t)i * LANES,
              load(gz + (size_t)i * columns + block));
      for (int i = convolutions - 1; i >= 0; i--) {
        const Layer& layer = net[i];
        x -= layer.input_size();
        choice -= layer.output_size();
        auto outer = View<const float>::whole(incoming, layer.pooled_rows(), layer.pooled_columns());
        float* inner = i > 0 || gx ? memory.block[i % 2] : nullptr;
        convolution_backward(layer, x, outer, choice, memory.flipped[i],
                             gradient ? memory.sums[i] : nullptr, memory.bias[i],
                             memory.bordered[i], inner);
        incoming = inner;
      }
      long image = start + block;
      if (gx)
        transpose(incoming, LANES, pixels, n - image < LANES ? n - image : LANES, gx + image * pixels,
                  pixels);
    }
  }
  if (!gradient) return;
  Parameters<float> gw(net, gradient);
  for (int i = 0; i < count; i++) {
    const Layer& layer = net[i];
    const float *sums = memory.sums[i], *bias = memory.bias[i];
    for (int o = 0; o < layer.out; o++) gw.bias[i][o] = total(load(bias + (size_t)o * LANES));
    if (layer.linear())
      for (int o = 0; o < layer.out; o++)
        std::memcpy(gw.weight[i] + (size_t)o * layer.in, sums + o * layer.padded_in(),
                    layer.in * sizeof(float));
    else
      for (size_t k = 0; k < layer.weights(); k++) gw.weight[i][k] = total(load(sums + k * LANES));
  }
}

// Values of working memory that a convolution of many channels needs, and the gradient of its weights.
size_t fedadb_convolve_work(const Convolution* c) {
  return ConvolutionMemory(*c, nullptr).size;
}

size_t fedadb_weight_gradient_work(const Convolution* c) {
  return WeightGradientMemory(*c, nullptr).size;
}

// y: the convolution of x with w, which is out × in × 3 × 3. If `flipped`, w is in × out × 3 × 3 and
// turned around: y is then the gradient of an input, and x that of its result.
void fedadb_convolve(const Convolution* c, const float* x, const float* w, int flipped, float* work,
                     float* y) {
  convolve_tiles(*c, x, w, flipped, work, y);
}

// g: the gradient of the result.
void fedadb_weight_gradient(const Convolution* c, const float* x, const float* g, float* work,
                            float* gw) {
  convolution_weight_gradient(*c, x, g, work, gw);
}

}  // extern "C"
