#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// Gloo writes without MSG_NOSIGNAL: a peer that has gone would end the test program. Workers ignore
// the signal too.
inline const bool kSigpipeIgnored = [] { return std::signal(SIGPIPE, SIG_IGN) != SIG_ERR; }();

// LibTorch's flight recorder (seen in 2.11) is one for all ProcessGroupGloo of a process and does
// not lock: ranks as threads, each with one, would write over each other. Read when it is first
// used.
inline const bool kFlightRecorderOff = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1) == 0;

// A Store within one process.
class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return values_.contains(key); };
    if (!changed_.wait_for(lock, time_left(deadline), is_there)) {
      throw CommError(CommFailure::timeout, "store: no key " + key);
    }
    return values_[key];
  }
  int64_t add(const std::string& key, int64_t amount) override {
    std::lock_guard lock(mutex_);
    const int64_t sum = (values_.contains(key) ? std::stoll(values_[key]) : 0) + amount;
    values_[key] = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }
  bool has(const std::string& key) override {
    std::lock_guard lock(mutex_);
    return values_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Backend {
  std::string kind;  // local | gloo | c10d | shm
  std::string algorithm;
};

inline Deadline soon() { return deadline_after(std::chrono::seconds(20)); }

// Runs body(rank, communicator) on one thread a rank and rethrows the first exception by rank.
inline void run_ranks(const Backend& backend, int64_t world_size,
                      const std::function<void(int64_t, Communicator&)>& body,
                      std::vector<std::exception_ptr>* errors = nullptr) {
  auto store = std::make_shared<MemoryStore>();
  auto hub = make_local_hub(world_size);
  std::vector<std::exception_ptr> caught(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        CommOptions options{rank, world_size, backend.algorithm, "127.0.0.1", "test/"};
        std::unique_ptr<Communicator> communicator;
        if (backend.kind == "local") communicator = make_local_communicator(options, hub);
        if (backend.kind == "gloo") communicator = make_gloo_communicator(options, store, soon());
        if (backend.kind == "shm") communicator = make_shm_communicator(options, store, soon());
        if (backend.kind == "c10d") communicator = make_c10d_communicator(options, store, soon());
        body(rank, *communicator);
        communicator->close(soon());
      } catch (...) {
        caught[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (errors != nullptr) {
    *errors = caught;
    return;
  }
  for (const auto& error : caught) {
    if (error) std::rethrow_exception(error);
  }
}

// "timeout: all_reduce of 4 float32: ...", or "none", or "exception: ...".
inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const CommError& failure) {
    return std::string(to_word(failure.kind())) + ": " + failure.what();
  } catch (const std::exception& other) {
    return std::string("exception: ") + other.what();
  }
}

inline CommFacts facts_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CommError& failure) {
    return failure.facts();
  } catch (const std::exception&) {
  }
  return {};
}

// The same numbers for the same seed, independent of LibTorch's generator.
inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  std::mt19937_64 engine(seed);
  float* data = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = static_cast<float>(static_cast<int32_t>(engine() >> 32)) * 0x1p-30F;
  }
  return tensor;
}

}  // namespace lockstep
