// Two ranks of trtllm_custom_all_reduce's barrier kernels as two streams of one process, with pauses that a test
// puts into the header: before the writes of all warps but the first (hooks::late_warps), and between a rank's own
// flag and its wait for the others' (hooks::before_wait). Races that need bad luck happen every time.
//
// Usage: barrier SCENARIO. Prints {"scenario", "wrong", "hung"}: elements that are wrong on both ranks together, and
// whether a kernel was still waiting after two seconds. Exits with 2 where CUDA or the arguments fail.

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace hooks {
__device__ unsigned late_us = 0;    // how long rank 1's other warps sleep before they write
__device__ unsigned wait_us = 0;    // how long rank 1 sleeps before its wait for flag `wait_flag`
__device__ unsigned wait_flag = 0;

__device__ inline void pause(unsigned microseconds) {
  for (unsigned passed = 0; passed < microseconds; passed += 100) __nanosleep(100'000);
}
__device__ inline void late_warps(size_t rank) {
  if (rank == 1 && threadIdx.x >= 32) pause(late_us);
}
__device__ inline void before_wait(size_t rank, unsigned flag) {
  if (rank == 1 && flag == wait_flag) pause(wait_us);
}
}  // namespace hooks

#include "flashinfer/comm/trtllm_allreduce.cuh"

namespace ar = flashinfer::trtllm_allreduce;
using T = half;

constexpr int kRanks = 2, kHidden = 4096;
constexpr size_t kLarge = 24 * kHidden, kSmall = 2 * kHidden;  // 24 blocks, which is as many as there are, and 2

void check(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  _exit(2);
}

enum class Way { kOneShot, kTwoShot, kNorm, kMemcpy };
struct Call {
  Way way;
  size_t elements;
  unsigned flag;
};

T* filled(size_t count, float (*value)(size_t, int), int rank) {
  std::vector<T> host(count);
  for (size_t i = 0; i < count; ++i) host[i] = __float2half(value(i, rank));
  T* device = nullptr;
  check(cudaMalloc(&device, count * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return device;
}

// Small whole numbers: their sums are exact in half precision.
float input(size_t i, int rank) { return float(rank + 1 + i % 5); }
float residual(size_t i, int) { return float(i % 3); }
float one(size_t, int) { return 1.0f; }
float poison(size_t, int) { return 30000.0f; }

struct Rank {
  T *input, *output, *residual, *weight, *intermediate, *shared[2];
  uint32_t* flags[2];
  cudaStream_t stream;

  explicit Rank(int rank)
      : input(filled(kLarge, ::input, rank)),
        output(filled(kLarge, poison, rank)),
        residual(filled(kLarge, ::residual, rank)),
        weight(filled(kHidden, one, rank)),
        intermediate(filled(kLarge, poison, rank)),
        shared{filled(kLarge, poison, rank), filled(kLarge, poison, rank)} {
    for (auto& flag : flags) {
      size_t const bytes = 2 * (ar::MAX_ALL_REDUCE_BLOCKS + 1) * kRanks * sizeof(uint32_t);
      check(cudaMalloc(&flag, bytes), "cudaMalloc");
      check(cudaMemset(flag, 0, bytes), "cudaMemset");
    }
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
};

void launch(std::vector<Rank>& ranks, int rank, Call const& call) {
  ar::AllReduceParams<T> params{};
  params.elts_total = call.elements;
  params.ranks_per_node = kRanks;
  params.local_rank = rank;
  params.barrier_flag = call.flag;
  for (int peer = 0; peer < kRanks; ++peer) {
    params.peer_comm_buffer_ptrs[peer] = ranks[peer].shared[call.flag % 2];
    params.peer_barrier_ptrs_in[peer] = ranks[peer].flags[0];
    params.peer_barrier_ptrs_out[peer] = ranks[peer].flags[1];
  }
  Rank& own = ranks[rank];
  params.local_input_buffer_ptr = own.input;
  params.local_output_buffer_ptr = own.output;
  params.fusion_params.hidden_size = kHidden;
  params.fusion_params.eps = 1e-6f;
  params.fusion_params.residual_buffer = own.residual;
  params.fusion_params.weight_buffer = own.weight;
  params.fusion_params.intermediate_buffer = own.intermediate;
  auto const none = ar::AllReduceFusionOp::NONE;
  auto const one_shot = ar::AllReduceStrategyType::ONESHOT, two_shot = ar::AllReduceStrategyType::TWOSHOT;
  cudaError_t status = cudaSuccess;
  switch (call.way) {
    case Way::kOneShot:
      status = ar::AllReduceDispatch<T, kRanks, false, false>(one_shot, none, params, false, own.stream);
      break;
    case Way::kTwoShot:
      status = ar::AllReduceDispatch<T, kRanks, false, false>(two_shot, none, params, false, own.stream);
      break;
    case Way::kMemcpy:
      status = ar::AllReduceDispatch<T, kRanks, false, true>(one_shot, none, params, false, own.stream);
      break;
    case Way::kNorm:
      status = ar::reduce_fusion::one_shot_all_reduce_norm_kernel_launcher<T, kRanks, false, true>(
          params, ar::AllReduceFusionOp::RESIDUAL_RMS_NORM, false, own.stream);
      break;
  }
  check(status, "launch");
  check(cudaGetLastError(), "launch");
}

bool finished(Rank const& rank, std::chrono::steady_clock::time_point until) {
  for (;;) {
    cudaError_t const status = cudaStreamQuery(rank.stream);
    if (status != cudaErrorNotReady) {
      check(status, "kernel");
      return true;
    }
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

size_t wrong(Rank const& rank, Call const& call) {
  bool const norm = call.way == Way::kNorm;
  std::vector<T> host(call.elements);
  check(cudaMemcpy(host.data(), norm ? rank.intermediate : rank.output, host.size() * sizeof(T),
                   cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  size_t count = 0;
  for (size_t i = 0; i < host.size(); ++i) {
    float expected = norm ? residual(i, 0) : 0.0f;
    for (int peer = 0; peer < kRanks; ++peer) expected += input(i, peer);
    count += __half2float(host[i]) != expected;
  }
  return count;
}

template <typename V>
void set(V const& symbol, unsigned value) {
  check(cudaMemcpyToSymbol(symbol, &value, sizeof(value)), "cudaMemcpyToSymbol");
}

int main(int argc, char** argv) {
  std::map<std::string, std::vector<Call>> const scenarios = {
      {"late-oneshot", {{Way::kOneShot, kLarge, 2}}},
      {"late-twoshot", {{Way::kTwoShot, kLarge, 2}}},
      {"late-norm", {{Way::kNorm, kLarge, 2}}},
      {"large-small", {{Way::kOneShot, kLarge, 2}, {Way::kOneShot, kSmall, 3}}},
      {"small-large", {{Way::kOneShot, kSmall, 3}, {Way::kOneShot, kLarge, 4}}},
      {"norm-oneshot", {{Way::kNorm, kLarge, 2}, {Way::kOneShot, kSmall, 3}}},
      {"copy-memcpy", {{Way::kOneShot, kLarge, 2}, {Way::kMemcpy, kLarge, 3}}},
      {"memcpy-copy", {{Way::kMemcpy, kLarge, 3}, {Way::kOneShot, kLarge, 4}}},
  };
  auto const found = scenarios.find(argc > 1 ? argv[1] : "");
  if (found == scenarios.end()) {
    std::fprintf(stderr, "usage: barrier SCENARIO, one of:");
    for (auto const& [name, calls] : scenarios) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  // Loading a kernel on first use waits for those that run, which wait for it.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  std::vector<Call> const& calls = found->second;
  if (calls.size() == 1) {
    set(hooks::late_us, 5'000);
  } else {
    set(hooks::wait_us, 50'000);
    set(hooks::wait_flag, calls.front().flag);
  }
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (Call const& call : calls)
    for (int rank = 0; rank < kRanks; ++rank) launch(ranks, rank, call);
  auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  bool hung = false;
  for (Rank const& rank : ranks) hung = hung || !finished(rank, until);
  size_t count = 0;
  if (!hung)
    for (Rank const& rank : ranks) count += wrong(rank, calls.back());
  std::printf("{\"scenario\": \"%s\", \"wrong\": %zu, \"hung\": %s}\n", argv[1], count, hung ? "true" : "false");
  std::fflush(stdout);
  _exit(0);  // kernels that wait for ever go with the process
}
