#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "reducer/comm/collective.h"

namespace gloo {
class Algorithm;
class Context;
}  // namespace gloo

namespace lockstep {

// Runs collectives on a connected Gloo context, blocking. One thread.
class GlooCollectives {
 public:
  // algorithm: ring | bcube (gloo::allreduce), halving_doubling | ring_chunked (the older classes).
  GlooCollectives(std::shared_ptr<gloo::Context> context, std::string algorithm);
  ~GlooCollectives();
  // Throws what Gloo throws, and CommError(rejected) for a dtype that it cannot add.
  void run(const CollectiveCall& call);

 private:
  void all_reduce(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  void reduce_scatter(const CollectiveCall& call, std::chrono::milliseconds timeout);
  void move(const CollectiveCall& call, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_as(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_old(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  template <class T>
  std::unique_ptr<gloo::Algorithm> make_old(const at::Tensor& staging);
  void barrier(std::chrono::milliseconds timeout);

  const std::shared_ptr<gloo::Context> context_;
  const std::string algorithm_;
  uint32_t tag_ = 0;
  // One of Gloo's older algorithm objects with the memory that it was made for. A message for an
  // object that the receiver has not made yet keeps the receiver's event loop spinning, and a slow
  // peer may still write to one that is gone: so they are kept and run again, for the same sizes.
  struct Prepared {
    at::Tensor staging;
    std::unique_ptr<gloo::Algorithm> algorithm;
  };
  std::list<Prepared> prepared_;  // the last used first; alike on all ranks, as their calls are
};

}  // namespace lockstep
