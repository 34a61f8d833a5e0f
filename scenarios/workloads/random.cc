#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <mutex>

#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

std::mutex& section_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::atomic<uint64_t>& sections() {
  static std::atomic<uint64_t> count{0};
  return count;
}

}  // namespace

uint64_t random_sections() { return sections().load(); }

RandomSection::RandomSection(uint64_t seed) {
  section_mutex().lock();
  ++sections();
  // As torch::manual_seed, but without a look at the accelerators, which would load them.
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

RandomSection::~RandomSection() { section_mutex().unlock(); }

at::Tensor generator_state() {
  const std::lock_guard<std::mutex> section(section_mutex());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  const std::lock_guard<std::mutex> section(section_mutex());
  ++sections();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

void prepare_libtorch(int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  at::set_num_interop_threads(static_cast<int>(threads));
  at::globalContext().setDeterministicAlgorithms(true, false);
}

}  // namespace lockstep
