// Layers and networks, and the memory that their passes need.
#pragma once

#include "convolution.h"

namespace fedadb {

constexpr int CHUNK = 64;  // images, a multiple of LANES
constexpr int MOST_LAYERS = 32;

// A layer, and what follows it; a linear layer has no kernel, and images of one pixel.
struct Layer {
  int in, out, kernel, padding, height, width, relu, pool;  // height and width without padding

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
  size_t input_size() const { return (size_t)in * padded_height() * padded_width() * LANES; }
  size_t output_size() const { return (size_t)features() * LANES; }
  size_t bordered_size() const {
    return (size_t)out * (rows() + 2 * border()) * (columns() + 2 * border()) * LANES;
  }
  size_t weights() const { return (size_t)in * out * (linear() ? 1 : kernel * kernel); }
  size_t padded_in() const { return (size_t)(in + LANES - 1) / LANES * LANES; }
  // The sums of the gradients of the weights: a linear layer's are not split by lanes.
  size_t sums_size() const { return linear() ? out * padded_in() : weights() * LANES; }

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
  size_t pixels() const { return (size_t)layers[0].in * layers[0].height * layers[0].width; }
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

// The weight and the bias of each layer, which follow each other in memory.
template <typename Number>
struct Parameters {
  Number *weight[MOST_LAYERS], *bias[MOST_LAYERS];

  Parameters(const Network& net, Number* memory) {
    for (int i = 0; i < net.count; i++) {
      weight[i] = memory;
      bias[i] = weight[i] + net[i].weights();
      memory = bias[i] + net[i].out;
    }
  }
};

// What each pass keeps in its working memory.
struct ForwardMemory {
  float* packed[MOST_LAYERS];  // weights of the convolutions
  float* features;  // of a block, after the convolutions
  float* result;  // of a chunk
  float* strip;
  size_t size;

  ForwardMemory(const Network& net, float* begin) {
    Memory memory{begin};
    int convolutions = net.convolutions();
    for (int i = 0; i < convolutions; i++) packed[i] = memory.take(net[i].weights());
    features = memory.take(net[convolutions - 1].output_size());
    result = memory.take((size_t)net.last().features() * CHUNK);
    strip = memory.take(net.largest([](const Layer& layer) {
      return layer.linear() ? 0 : (size_t)layer.out * 2 * layer.columns() * LANES;
    }));
    size = memory.used;
  }
};

struct BackwardMemory {
  float *bias[MOST_LAYERS], *sums[MOST_LAYERS];  // of the gradients
  size_t biases, both;  // how many values those are
  float* flipped[MOST_LAYERS];  // weights of the convolutions
  float* bordered[MOST_LAYERS];  // gradients of the convolutions' outputs
  float *block[2], *chunk[2];  // gradients between two convolutions, and two linear layers
  float *masked, *transposed;  // of the linear layer that is computed
  float *result, *result_gradient;  // of a chunk
  size_t size;

  BackwardMemory(const Network& net, float* begin) {
    Memory memory{begin};
    for (int i = 0; i < net.count; i++) bias[i] = memory.take((size_t)net[i].out * LANES);
    biases = memory.used;
    for (int i = 0; i < net.count; i++) sums[i] = memory.take(net[i].sums_size());
    both = memory.used;
    for (int i = 0; i < net.convolutions(); i++) {
      flipped[i] = memory.take(net[i].weights());
      bordered[i] = memory.take(net[i].bordered_size());
    }
    for (float*& half : block)
      half = memory.take(net.largest([](const Layer& layer) {
        size_t in = layer.input_size(), out = layer.output_size();
        return layer.linear() ? 0 : in > out ? in : out;
      }));
    for (float*& half : chunk)
      half = memory.take(net.largest([](const Layer& layer) {
        return layer.linear() ? (size_t)layer.in * CHUNK : 0;
      }));
    masked = memory.take(net.largest([](const Layer& layer) {
      return layer.linear() ? (size_t)layer.out * CHUNK : 0;
    }));
    transposed = memory.take(net.largest([](const Layer& layer) {
      return layer.linear() ? layer.padded_in() * CHUNK : 0;
    }));
    result = memory.take((size_t)net.last().features() * CHUNK);
    result_gradient = memory.take((size_t)net.last().features() * CHUNK);
    size = memory.used;
  }
};

}  // namespace fedadb
