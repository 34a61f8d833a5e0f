#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What a replay golden must know about the way gradients are averaged: chosen by the plan from
// reducer and communicator, declared there, never asked of the code under test. No LibTorch.
struct ReplayRule {
  // registration: one bucket per parameter; one_bucket: all in registration order; ddp: one bucket
  // in step 1, then (rebuild) greedy in the order in which rank 0's gradients became ready.
  std::string layout = "ddp";  // registration | one_bucket | ddp
  bool padded = false;         // buckets to a multiple of the ranks' number
  // Not averaged: outputs of all shards are gathered, the loss is over all of them, and gradients
  // are added to zero in the order of the ranks.
  bool gathered = false;
  bool rebuild = true;
  int64_t rebuild_after_step =
      1;  // synchronized passes; 2 where the first step of a static graph only counts
  int64_t first_bucket_bytes = 1 << 20;
  int64_t bucket_cap_bytes = 25 << 20;
  // multiply_before: g * fl(1/W), then the sum; divide_before: g / W, then the sum;
  // divide_after: the sum, then / W; none: the sum. later: of gradients that were synchronized in
  // an earlier step.
  std::string division_first_step = "multiply_before";
  std::string division_later = "multiply_before";
  // Sparse gradients stand alone in every layout: g / W (or the sum / W), coalesced, then added in
  // order of rank whatever the algorithm.
  // Gradients are cast to this dtype before they are divided and added, and back after it.
  std::string added_as;           // float16 | bfloat16; empty: their own
  bool broadcast_buffers = true;  // rank 0's, before the first forward of a step
  // average_before_forward, average_after_forward: instead of that, each buffer / W, then the sum.
  std::string buffer_hook = "none";
  // Names as scenarios/base/text.h reads them. Parameters that are averaged one by one: the sum,
  // then / W; buffers that stay each rank's own.
  std::vector<std::string> ignored;
  // Modules of which no two share a bucket; empty: all may.
  std::vector<std::string> wrapped_modules;
  // Ranks may have no batch: they contribute zeros; buffers are those of the largest rank that has
  // one, and at the end of an epoch all ranks get them. divide_by_active: by the ranks that have
  // one, else always by all.
  bool joins = false;
  bool divide_by_active = false;
  // After these steps the ranks started anew from a checkpoint: undefined gradients, the first
  // layout of buckets, rank 0's buffers on all.
  std::vector<int64_t> restart_after_steps;
  std::vector<int64_t> double_restart_after_steps;  // the same of the double run
  std::string algorithm = "ring";                   // a word of golden/reduction_order.h
  // A gradient that no rank has added to since the last average stays as it is, where it stands in
  // no bucket alone. Else W copies of it / W are added.
  bool keeps_unused = false;
  // Each shard's gradients are those of an undefined grad(), whatever zero_grad is.
  bool fresh_shards = false;
  // Of golden run invariant, in which step it also tells what its gradients would be if two shards
  // exchanged their places in the tree; 0: never.
  int64_t exchange_in_step = 0;
};

}  // namespace lockstep
