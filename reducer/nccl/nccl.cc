#include "reducer/nccl/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "reducer/c10d/c10d_adapters.h"
#include "reducer/nccl/module/nccl_module.h"

namespace lockstep {
namespace {

struct Module {
  MakeNccl make = nullptr;
  std::string problem;
};

// Beside the program, or where an installed one has it.
std::filesystem::path module_file() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& file : {folder / kNcclModule, folder / "../lib/lockstep" / kNcclModule})
    if (std::filesystem::exists(file, error)) return file;
  return {};
}

Module load() {
  const std::filesystem::path file = module_file();
  if (file.empty())
    return {nullptr, fmt::format("this build has no {}: it needs a LibTorch with CUDA and NCCL's "
                                 "and CUDA's headers",
                                 kNcclModule)};
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = handle != nullptr ? ::dlsym(handle, kMakeNccl) : nullptr;
  if (function != nullptr) return {reinterpret_cast<MakeNccl>(function), ""};
  const char* why = ::dlerror();
  return {nullptr, fmt::format("{} cannot be loaded ({})", kNcclModule, why ? why : "no reason")};
}

const Module& module() {
  static const Module loaded = load();
  return loaded;
}

}  // namespace

std::string why_no_nccl() { return module().problem; }

std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     c10::Device device, Deadline deadline) {
  if (!module().problem.empty()) throw CommError(CommFailure::rejected, module().problem);
  NcclBackend made;
  try {
    auto adapter =
        c10::make_intrusive<StoreAdapter>(std::move(store), options.prefix + "nccl/", deadline);
    module().make(adapter, static_cast<int>(options.rank), static_cast<int>(options.world_size),
                  time_left(deadline), &made);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(CommFailure::rejected, fmt::format("NCCL: {}", error.what()));
  }
  auto communicator = make_backend_communicator(made.backend, device, made.abort);
  communicator->barrier(deadline)->wait();  // NCCL connects when it is first used
  return communicator;
}

}  // namespace lockstep
