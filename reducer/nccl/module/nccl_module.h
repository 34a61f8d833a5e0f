#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>

#include "reducer/c10d/c10d_adapters.h"

namespace lockstep {

// What the module offers: one function, found by its name.
struct NcclBackend {
  c10::intrusive_ptr<C10dBackend> backend;
  std::function<void()> abort;  // ends all collectives under way
};

using MakeNccl = void (*)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                          std::chrono::milliseconds timeout, NcclBackend* made);
inline constexpr const char* kMakeNccl = "lockstep_make_nccl";
inline constexpr const char* kNcclModule = "lockstep-nccl.so";

}  // namespace lockstep
