#pragma once

#include <deque>
#include <functional>
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
  void run(const Collective& call);

 private:
  void all_reduce(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  void reduce_scatter(const Collective& call, std::chrono::milliseconds timeout);
  void move(const Collective& call, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_as(const at::Tensor& tensor, std::chrono::milliseconds timeout);
  template <class T>
  void all_reduce_old(const at::Tensor& tensor);

  const std::shared_ptr<gloo::Context> context_;
  const std::string algorithm_;
  uint32_t tag_ = 0;
  // Old-style objects own buffers that a slow peer may still write to: the last ones stay.
  std::deque<std::unique_ptr<gloo::Algorithm>> kept_;
};

}  // namespace lockstep
