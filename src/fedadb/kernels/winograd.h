// 3×3 convolutions of many channels, with stride 1 and a padding of 1.
//
// Winograd's F(4×4, 3×3), as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// CVPR 2016: a tile of 4×4 pixels of the result takes 36 products of channels, one for each point, in
// place of 144. Here a vector holds LANES channels of one pixel; images are channels-last.
#pragma once

#include "linear.h"

namespace fedadb {

constexpr int TILE = 4, POINTS = 36, KERNEL = 9;
constexpr size_t LENGTH = LANES * KERNEL;  // of a row of kernels
constexpr int PANEL = COLUMNS * LANES;  // channels whose sums the registers hold

// The points of each axis are 0, ±A, ±B and infinity: errors are half of those of 0, ±1, ±2 and infinity.
constexpr float A = 0.70710678118654752f, B = 1.41421356237309505f, AA = 0.5f, BB = 2;
constexpr float AT_0 = 1 / (AA * BB), AT_A = 1 / (2 * AA * (AA - BB)), AT_B = 1 / (2 * BB * (BB - AA));

struct InputTransform {
  static constexpr int IN = 6, OUT = 6;
  static void apply(const Lanes* x, Lanes* y) {
    Lanes even_a = x[4] - BB * x[2], odd_a = A * (x[3] - BB * x[1]);
    Lanes even_b = x[4] - AA * x[2], odd_b = B * (x[3] - AA * x[1]);
    y[0] = AA * BB * x[0] - (AA + BB) * x[2] + x[4];
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = AA * BB * x[1] - (AA + BB) * x[3] + x[5];
  }
};

struct OutputTransform {
  static constexpr int IN = 6, OUT = 4;
  static void apply(const Lanes* x, Lanes* y) {
    Lanes sum_a = x[1] + x[2], sum_b = x[3] + x[4];
    Lanes difference_a = x[1] - x[2], difference_b = x[3] - x[4];
    y[0] = x[0] + sum_a + sum_b;
    y[1] = A * difference_a + B * difference_b;
    y[2] = AA * sum_a + BB * sum_b;
    y[3] = A * AA * difference_a + B * BB * difference_b + x[5];
  }
};

struct OutputGradientTransform {  // the transpose of OutputTransform
  static constexpr int IN = 4, OUT = 6;
  static void apply(const Lanes* x, Lanes* y) {
    Lanes even_a = x[0] + AA * x[2], odd_a = A * x[1] + A * AA * x[3];
    Lanes even_b = x[0] + BB * x[2], odd_b = B * x[1] + B * BB * x[3];
    y[0] = x[0];
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x[3];
  }
};

struct WeightTransform {
  static constexpr int IN = 3, OUT = 6;
  static void apply(const Lanes* x, Lanes* y) {
    Lanes even_a = AT_A * x[0] + AT_A * AA * x[2], odd_a = AT_A * A * x[1];
    Lanes even_b = AT_B * x[0] + AT_B * BB * x[2], odd_b = AT_B * B * x[1];
    y[0] = AT_0 * x[0];
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x[2];
  }
};

struct WeightGradientTransform {  // the transpose of WeightTransform
  static constexpr int IN = 6, OUT = 3;
  static void apply(const Lanes* x, Lanes* y) {
    Lanes sum_a = x[1] + x[2], sum_b = x[3] + x[4];
    Lanes difference_a = x[1] - x[2], difference_b = x[3] - x[4];
    y[0] = AT_0 * x[0] + AT_A * sum_a + AT_B * sum_b;
    y[1] = AT_A * A * difference_a + AT_B * B * difference_b;
    y[2] = AT_A * AA * sum_a + AT_B * BB * sum_b + x[5];
  }
};

// Applies the transform to the columns of read(i, j), and to the rows of what they become.
template <typename Transform, typename Read, typename Write>
inline void transform(Read read, Write write) {
  Lanes half[Transform::OUT][Transform::IN], column[Transform::IN], result[Transform::OUT];
#pragma GCC unroll 6
  for (int j = 0; j < Transform::IN; j++) {
#pragma GCC unroll 6
    for (int i = 0; i < Transform::IN; i++) column[i] = read(i, j);
    Transform::apply(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < Transform::OUT; i++) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < Transform::OUT; i++) {
    Transform::apply(half[i], result);
#pragma GCC unroll 6
    for (int j = 0; j < Transform::OUT; j++) write(i, j, result[j]);
  }
}

// A convolution: images × height × width × channels. Channels are whole vectors.
struct Convolution {
  long images, height, width, in, out;

  long tile_rows() const { return (height + TILE - 1) / TILE; }
  long tile_columns() const { return (width + TILE - 1) / TILE; }
  long tiles() const { return images * tile_rows() * tile_columns(); }
  // Tiles that are computed together: they and a panel of weights stay in the second-level cache.
  long block() const {
    long fit = (in > 4 * 4 * ROWS ? in / 4 + ROWS - 1 : 4 * ROWS) / ROWS * ROWS;
    return fit < tiles() ? fit : tiles();
  }
  bool one_block() const { return block() == tiles(); }
  long panels(long channels) const { return (channels + PANEL - 1) / PANEL; }
};

// Values of one point; the last ones keep points from sharing the same places in the cache.
inline size_t plane(long rows, long columns) { return (size_t)rows * columns + LANES; }

struct Tile {
  long image, y, x;  // its first pixel

  Tile(const Convolution& c, long tile) {
    long within = tile % (c.tile_rows() * c.tile_columns());
    image = tile / (c.tile_rows() * c.tile_columns());
    y = within / c.tile_columns() * TILE, x = within % c.tile_columns() * TILE;
  }
};

// The `count` tiles from `first` on: points × tiles × channels. The transform of an input also takes the
// pixels around a tile. Those outside of the image are `zeros`.
template <typename Transform>
void transform_tiles(const Convolution& c, const float* images, long channels, long first, long count,
                     const float* zeros, float* to) {
  constexpr int SIDE = Transform::IN, BORDER = (SIDE - TILE) / 2;
  size_t points = plane(c.block(), channels);
  for (long t = 0; t < count; t++) {
    Tile tile(c, first + t);
    const float* places[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
      for (int j = 0; j < SIDE; j++) {
        long y = tile.y + i - BORDER, x = tile.x + j - BORDER;
        bool inside = 0 <= y && y < c.height && 0 <= x && x < c.width;
        size_t pixel = (size_t)(tile.image * c.height + y) * c.width + x;
        places[i][j] = inside ? images + pixel * channels : zeros;
      }
    float* row = to + (size_t)t * channels;
    for (long channel = 0; channel < channels; channel += LANES)
      transform<Transform>([&](int i, int j) { return load(places[i][j] + channel); },
                           [&](int i, int j, Lanes value) {
                             store(row + (6 * i + j) * points + channel, value);
                           });
  }
}

// The pixels of the tiles, for `wide` channels from `channel` on, from points × tiles × wide.
inline void finish_tiles(const Convolution& c, const float* from, long channel, long wide, long first,
                         long count, float* y) {
  size_t points = plane(c.block(), PANEL);
  for (long t = 0; t < count; t++) {
    Tile tile(c, first + t);
    long rows = c.height - tile.y, columns = c.width - tile.x;
    const float* row = from + (size_t)t * wide;
    float* pixels = y + ((size_t)(tile.image * c.height + tile.y) * c.width + tile.x) * c.out + channel;
    for (long q = 0; q < wide; q += LANES)
      transform<OutputTransform>(
          [&](int i, int j) { return load(row + (6 * i + j) * points + q); },
          [&](int i, int j, Lanes value) {
            if (i < rows && j < columns) store(pixels + (size_t)(i * c.width + j) * c.out + q, value);
          });
  }
}

// LANES kernels, `distance` values apart: kernels[s] has value s of each. Reads whole vectors.
inline void read_kernels(const float* w, size_t distance, Lanes* kernels) {
#pragma GCC unroll 3
  for (int s = 0; s < KERNEL; s += LANES) {
    Lanes rows[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) rows[i] = load(w + i * distance + s);
    transpose_square(rows);
    int width = KERNEL - s < LANES ? KERNEL - s : LANES;
#pragma GCC unroll 16
    for (int i = 0; i < width; i++) kernels[s + i] = rows[i];
  }
}

// The reverse, for kernels that follow each other.
inline void write_kernels(const Lanes* kernels, float* w) {
  constexpr int PARTS = (KERNEL + LANES - 1) / LANES;
  Lanes rows[PARTS][LANES] = {};
#pragma GCC unroll 9
  for (int s = 0; s < KERNEL; s++) rows[s / LANES][s % LANES] = kernels[s];
#pragma GCC unroll 3
  for (int part = 0; part < PARTS; part++) transpose_square(rows[part]);
  float values[LENGTH + LANES];  // what a vector writes behind its kernel, the next one replaces
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++)
#pragma GCC unroll 3
    for (int part = 0; part < PARTS; part++)
      store(values + i * KERNEL + part * LANES, rows[part][i]);
  std::memcpy(w, values, LENGTH * sizeof(float));
}

// The weights of `wide` channels of the result from `channel` on: points × in × wide. They are
// out × in × 3 × 3; if `flipped`, in × out × 3 × 3, and each kernel is turned around.
inline void transform_weights(const Convolution& c, const float* w, bool flipped, long channel,
                              long wide, float* to) {
  constexpr size_t ROOM = LENGTH + LANES;  // the last vector ends behind the kernels
  size_t per_in = (flipped ? c.out : 1) * KERNEL, per_out = (flipped ? 1 : c.in) * KERNEL;
  size_t points = plane(c.in, PANEL);
  for (long q = 0; q < wide; q += LANES)
    for (long first = 0; first < c.in; first += LANES) {
      // LANES × LANES kernels. In w, their rows may be so far apart that the cache holds few of them.
      float square[LANES * ROOM];
      const float* corner = w + (channel + q) * per_out + first * per_in;
      for (int row = 0; row < LANES; row++)
        std::memcpy(square + row * ROOM, corner + row * (flipped ? per_in : per_out),
                    LENGTH * sizeof(float));
      for (int i = 0; i < LANES; i++) {
        Lanes kernels[KERNEL];
        float* row = to + (size_t)(first + i) * wide + q;
        auto write = [&](int y, int x, Lanes value) { store(row + (6 * y + x) * points, value); };
        if (flipped) {
          read_kernels(square + i * ROOM, KERNEL, kernels);
          transform<WeightTransform>([&](int y, int x) { return kernels[8 - 3 * y - x]; }, write);
        } else {
          read_kernels(square + i * KERNEL, ROOM, kernels);
          transform<WeightTransform>([&](int y, int x) { return kernels[3 * y + x]; }, write);
        }
      }
    }
}

// The gradients of the weights to `wide` input channels from `channel` on, from points × out × wide.
inline void finish_weights(const Convolution& c, const float* from, long channel, long wide, float* gw) {
  size_t points = plane(c.out, PANEL);
  for (long o = 0; o < c.out; o++)
    for (long q = 0; q < wide; q += LANES) {
      const float* row = from + (size_t)o * wide + q;
      Lanes kernels[KERNEL];
      transform<WeightGradientTransform>(
          [&](int i, int j) { return load(row + (6 * i + j) * points); },
          [&](int i, int j, Lanes value) { kernels[3 * i + j] = value; });
      write_kernels(kernels, gw + ((size_t)o * c.in + channel + q) * KERNEL);
    }
}

// Calls function(panel, channel, wide) for the channels, PANEL at a time.
template <typename Function>
inline void for_panels(long channels, Function function) {
  for (long channel = 0; channel < channels; channel += PANEL)
    function(channel / PANEL, channel, channels - channel < PANEL ? channels - channel : PANEL);
}

// Where a convolution, or the gradient of its weights, keeps what it needs until its end. If there is
// one block of tiles, the weights are needed one panel at a time.
struct ConvolutionMemory {
  float *zeros, *input, *sums, *weights;
  size_t panel;  // values of a panel of weights, or 0
  size_t size;

  ConvolutionMemory(const Convolution& c, float* begin) {
    Memory memory{begin};
    size_t of_panel = POINTS * plane(c.in, PANEL);
    zeros = memory.take(c.in);
    input = memory.take(POINTS * plane(c.block(), c.in));
    sums = memory.take(POINTS * plane(c.block(), PANEL));
    weights = memory.take((c.one_block() ? 1 : c.panels(c.out)) * of_panel);
    panel = c.one_block() ? 0 : of_panel;
    size = memory.used;
  }
};

struct WeightGradientMemory {
  float *zeros, *input, *gradient, *weights;
  size_t panel;
  size_t size;

  WeightGradientMemory(const Convolution& c, float* begin) {
    Memory memory{begin};
    size_t of_panel = POINTS * plane(c.out, PANEL);
    zeros = memory.take(c.in > c.out ? c.in : c.out);
    input = memory.take(POINTS * plane(c.block(), c.in));
    gradient = memory.take(POINTS * plane(c.block(), c.out));
    weights = memory.take((c.one_block() ? 1 : c.panels(c.in)) * of_panel);
    panel = c.one_block() ? 0 : of_panel;
    size = memory.used;
  }
};

// y = the convolution of x; `flipped` is as in transform_weights.
inline void convolve_tiles(const Convolution& c, const float* x, const float* w, bool flipped,
                           float* work, float* y) {
  ConvolutionMemory memory(c, work);
  std::memset(memory.zeros, 0, c.in * sizeof(float));
  auto zero = [](int, int) { return Lanes{}; };
  auto same = [](Lanes sum, int, int) { return sum; };
  for (long first = 0; first < c.tiles(); first += c.block()) {
    long count = c.tiles() - first < c.block() ? c.tiles() - first : c.block();
    transform_tiles<InputTransform>(c, x, c.in, first, count, memory.zeros, memory.input);
    for_panels(c.out, [&](long panel, long channel, long wide) {
      float* weights = memory.weights + panel * memory.panel;
      if (first == 0) transform_weights(c, w, flipped, channel, wide, weights);
      for (int p = 0; p < POINTS; p++)
        multiply({memory.input + p * plane(c.block(), c.in), (size_t)c.in, 1}, (int)count, (int)c.in,
                 weights + p * plane(c.in, PANEL), wide, memory.sums + p * plane(c.block(), PANEL),
                 wide, (int)wide, zero, same);
      finish_tiles(c, memory.sums, channel, wide, first, count, y);
    });
  }
}

// gw = the gradient of the weights from that of the result. The sum of each block of tiles starts at
// zero, so that it rounds less.
inline void convolution_weight_gradient(const Convolution& c, const float* x, const float* g,
                                        float* work, float* gw) {
  WeightGradientMemory memory(c, work);
  std::memset(memory.zeros, 0, (memory.input - memory.zeros) * sizeof(float));
  if (!c.tiles()) std::memset(gw, 0, (size_t)c.in * c.out * KERNEL * sizeof(float));
  auto zero = [](int, int) { return Lanes{}; };
  for (long first = 0; first < c.tiles(); first += c.block()) {
    long count = c.tiles() - first < c.block() ? c.tiles() - first : c.block();
    transform_tiles<InputTransform>(c, x, c.in, first, count, memory.zeros, memory.input);
    transform_tiles<OutputGradientTransform>(c, g, c.out, first, count, memory.zeros, memory.gradient);
    for_panels(c.in, [&](long panel, long channel, long wide) {
      float* weights = memory.weights + panel * memory.panel;
      for (int p = 0; p < POINTS; p++) {
        float* sums = weights + p * plane(c.out, PANEL);
        auto add = [&](Lanes sum, int r, int q) {
          return first ? load(sums + (size_t)r * wide + q) + sum : sum;
        };
        multiply({memory.gradient + p * plane(c.block(), c.out), 1, (size_t)c.out}, (int)c.out,
                 (int)count, memory.input + p * plane(c.block(), c.in) + channel, c.in, sums, wide,
                 (int)wide, zero, add);
      }
      if (first + count == c.tiles()) finish_weights(c, weights, channel, wide, gw);
    });
  }
}

}  // namespace fedadb
