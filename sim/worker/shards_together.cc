#include "sim/worker/shards_together.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

std::vector<ShardRange> ranges_of(int64_t shards, int64_t world_size) {
  std::vector<ShardRange> ranges;
  for (int64_t rank = 0; rank < world_size; ++rank)
    ranges.push_back(shards_of_rank(shards, world_size, rank));
  return ranges;
}

}  // namespace

ShardsTogether::ShardsTogether(BatchGroup& ranks, int64_t rank, int64_t world_size, int64_t shards)
    : ranks_(ranks),
      ranges_(ranges_of(shards, world_size)),
      own_(static_cast<size_t>(ranges_[static_cast<size_t>(rank)].size())) {}

void ShardsTogether::run(const Training& training, Reducer& reducer,
                         const std::function<void(size_t)>& body,
                         const std::function<void(size_t, size_t)>& resumed) {
  training_ = &training;
  reducer_ = &reducer;
  resumed_ = resumed;
  shards_.clear();
  for (size_t i = 0; i < own_; ++i) shards_.push_back(std::make_unique<Shard>());
  rows_.assign(own_, {});
  layers_ = 0;
  failure_ = nullptr;
  now_ = 0;
  // What LibTorch knows of the calling thread: whether gradients are wanted, and more.
  const at::ThreadLocalState caller;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < own_; ++i)
    threads.emplace_back([&, i] {
      const at::ThreadLocalStateGuard as_caller(caller);
      live(i, body);
    });
  shards_.front()->turn.release();
  for (std::thread& thread : threads) thread.join();
  all_ = at::Tensor();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ShardsTogether::live(size_t shard, const std::function<void(size_t)>& body) {
  try {
    await_turn(shard);
    body(shard);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
  shards_[shard]->ended = true;
  hand_on(shard);
}

// Returns as shard `shard`, whose gradients, buffers and draws are the training's from now on.
void ShardsTogether::await_turn(size_t shard) {
  shards_[shard]->turn.acquire();
  if (failure_) throw std::runtime_error("another virtual shard has failed");
  const size_t before = std::exchange(now_, shard);
  if (training_->draws != nullptr) {
    shards_[before]->draws = training_->draws->place();
    training_->draws->go_on_at(shards_[shard]->draws);
  }
  reducer_->enter_shard(static_cast<int64_t>(shard));
  if (resumed_) resumed_(before, shard);
}

// To the next one that has not ended.
void ShardsTogether::hand_on(size_t from) {
  for (size_t i = 1; i <= own_; ++i) {
    Shard& next = *shards_[(from + i) % own_];
    if (next.ended) continue;
    next.turn.release();
    return;
  }
}

at::Tensor ShardsTogether::all_gather(const at::Tensor& row) {
  const size_t own = now_;
  const int64_t layer = layers_;
  rows_[own] = row;
  if (own + 1 == own_) {
    const bool all_have_come = std::all_of(rows_.begin(), rows_.end(),
                                           [](const at::Tensor& one) { return one.defined(); });
    if (all_have_come) {
      all_ = rows_of_all();
      rows_.assign(own_, {});
      ++layers_;
    }
  }
  if (own_ > 1) {
    hand_on(own);
    await_turn(own);
  }
  if (layers_ == layer)
    throw std::runtime_error("virtual shards do not come to the same normalizing layers");
  return all_;
}

// Ranks that have fewer shards than others fill up.
at::Tensor ShardsTogether::rows_of_all() const {
  int64_t most = 0;
  for (const ShardRange& range : ranges_) most = std::max(most, range.size());
  std::vector<at::Tensor> sent = rows_;
  sent.resize(static_cast<size_t>(most), at::zeros_like(rows_.front()));
  const int64_t numbers = rows_.front().numel();
  const at::Tensor received = ranks_.all_gather(at::stack(sent).view({-1}));
  std::vector<at::Tensor> rows;
  for (size_t rank = 0; rank < ranges_.size(); ++rank)
    rows.push_back(received[static_cast<int64_t>(rank)]
                       .view({most, numbers})
                       .narrow(0, 0, ranges_[rank].size()));
  return at::cat(rows);
}

}  // namespace lockstep
