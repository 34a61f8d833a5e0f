#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// What a replay golden must know about the way gradients are averaged: chosen by the plan from
// reducer and communicator, declared there, never asked of the code under test. No LibTorch.
struct ReplayRule {
  // registration: one bucket per parameter; one_bucket: all in registration order; ddp: one bucket
  // in step 1, then (rebuild) greedy in the order in which rank 0's gradients became ready.
  std::string layout = "ddp";  // registration | one_bucket | ddp
  bool rebuild = true;
  int64_t first_bucket_bytes = 1 << 20;
  int64_t bucket_cap_bytes = 25 << 20;
  // multiply_before: g * fl(1/W), then the sum; divide_before: g / W, then the sum;
  // divide_after: the sum, then / W.
  std::string division_first_step = "multiply_before";
  std::string division_later = "multiply_before";
  std::string algorithm = "ring";  // ring | bcube | halving_doubling | ring_chunked | rank_order
};

}  // namespace lockstep
