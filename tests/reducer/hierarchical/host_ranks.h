#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "reducer/hierarchical/hierarchical.h"
#include "tests/reducer/test_group.h"

namespace lockstep {

// Runs body(rank, communicator) on one thread a rank; gives the exceptions by rank.
inline std::vector<std::exception_ptr> run_hosts(
    const std::string& algorithm, int64_t ranks, int64_t ranks_per_host,
    const std::function<void(int64_t, Communicator&)>& body) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::exception_ptr> caught(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const CommOptions options{rank, ranks, algorithm, "127.0.0.1", "test/"};
        const auto communicator =
            make_hierarchical_communicator(options, ranks_per_host, store, soon());
        body(rank, *communicator);
        communicator->close(soon());
      } catch (...) {
        caught[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return caught;
}

// Hosts of 2 + 1, 2 + 2, 3 + 3, 4 + 3, one alone, and each rank one.
struct HostShape {
  int64_t ranks, per_host;
};
inline constexpr HostShape kHostShapes[] = {{1, 1}, {3, 2}, {4, 2}, {6, 3},
                                            {7, 4}, {3, 4}, {3, 1}, {7, 2}};

}  // namespace lockstep
