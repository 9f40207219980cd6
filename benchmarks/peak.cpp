// Fused multiply-adds in registers, without any access to memory: what a core can multiply at most.

#if defined(__AVX512F__)
constexpr int LANES = 16, CHAINS = 24;  // of 32 registers
#elif defined(__AVX__)
constexpr int LANES = 8, CHAINS = 12;  // of 16 registers
#elif defined(__ARM_NEON)
constexpr int LANES = 4, CHAINS = 24;  // of 32 registers
#else
constexpr int LANES = 4, CHAINS = 12;
#endif

typedef float Vector __attribute__((vector_size(4 * LANES)));

// Each chain waits for its own last result only; there are enough of them to occupy all units. The
// factor and the summand come from the caller, so that the compiler cannot compute the result.
extern "C" float multiply_add(long steps, float factor, float summand) {
  const Vector a = factor - Vector{}, b = summand - Vector{};
  Vector sum[CHAINS];
#pragma GCC unroll 32
  for (int chain = 0; chain < CHAINS; chain++) sum[chain] = a * float(chain);
  for (long step = 0; step < steps; step++) {
#pragma GCC unroll 32
    for (int chain = 0; chain < CHAINS; chain++) sum[chain] = sum[chain] * a + b;
  }
  float total = 0;
  for (int chain = 0; chain < CHAINS; chain++)
    for (int lane = 0; lane < LANES; lane++) total += sum[chain][lane];
  return total;
}

extern "C" long flops_per_step() { return 2L * LANES * CHAINS; }
