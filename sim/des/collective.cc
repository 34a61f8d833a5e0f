#include "sim/des/collective.h"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

bool is_power_of_two(int64_t ranks) { return std::has_single_bit(static_cast<uint64_t>(ranks)); }

std::vector<int64_t> ring_costs(const Job& job, int64_t bytes) {
  std::vector<int64_t> costs(static_cast<size_t>(job.ranks));
  for (size_t r = 0; r < costs.size(); ++r)
    costs[r] = ring_round_ns(job.cost, link_of(job, r), bytes, job.ranks);
  return costs;
}

void through_ring(const std::vector<int64_t>& costs, std::vector<int64_t>* times) {
  const size_t ranks = times->size();
  for (size_t round = 0; round < 2 * (ranks - 1); ++round) {
    for (size_t r = 0; r < ranks; ++r) (*times)[r] += costs[r];
    // From the last to the first, so that each still sees what its neighbour had.
    const int64_t last = times->back();
    for (size_t r = ranks - 1; r > 0; --r) (*times)[r] = std::max((*times)[r], (*times)[r - 1]);
    times->front() = std::max(times->front(), last);
  }
}

Exchange exchange_of(size_t distance, bool halves, bool adds) {
  const auto apart = static_cast<int64_t>(distance);
  return {apart, halves ? 2 * apart : 1, adds};
}

void exchange(size_t distance, int64_t cost, std::vector<int64_t>* times) {
  for (size_t r = 0; r < times->size(); ++r) {
    const size_t peer = r ^ distance;
    if (peer < r) continue;
    const int64_t end = std::max((*times)[r], (*times)[peer]) + cost;
    (*times)[r] = (*times)[peer] = end;
  }
}

void through_exchanges(const Job& job, int64_t bytes, std::vector<int64_t>* times) {
  const bool halves = job.cost.algorithm == Algorithm::halving_doubling;
  const size_t ranks = times->size();
  for (size_t distance = 1; distance < ranks; distance *= 2)
    exchange(distance, exchange_ns(job.cost, exchange_of(distance, halves, true), bytes, job.ranks),
             times);
  if (!halves) return;
  for (size_t distance = ranks / 2; distance > 0; distance /= 2)
    exchange(distance, exchange_ns(job.cost, exchange_of(distance, true, false), bytes, job.ranks),
             times);
}

}  // namespace

namespace {

std::vector<int64_t> ends_after(const std::vector<int64_t>& starts, int64_t ns) {
  const int64_t last = *std::max_element(starts.begin(), starts.end());
  return std::vector<int64_t>(starts.size(), last + ns);
}

}  // namespace

LinkCost link_of(const Job& job, size_t rank) {
  return job.links.empty() ? flat_link(job.cost, job.ranks) : job.links[rank];
}

int64_t wire_ns(const Job& job, Operation operation, int64_t bytes) {
  if (operation == Operation::all_to_all) bytes = exchanged_bytes(job, bytes);
  if (job.links.empty()) return wire_ns(job.cost, operation, bytes, job.ranks);
  int64_t longest = 0;
  CostModel cost = job.cost;
  for (const LinkCost& link : job.links) {
    cost.link = link;
    longest = std::max(longest, wire_ns(cost, operation, bytes, job.ranks));
  }
  return longest;
}

bool has_rounds(const Job& job) {
  if (!job.cost.tables.empty() || job.ranks == 1 || exchanges_parts(job) || job.parts) return false;
  const Algorithm algorithm = job.cost.algorithm;
  if (is_ring(algorithm)) return true;
  return is_power_of_two(job.ranks) &&
         (algorithm == Algorithm::recursive_doubling || algorithm == Algorithm::halving_doubling);
}

std::vector<int64_t> ends_by_formula(const Job& job, const std::vector<int64_t>& starts,
                                     int64_t bytes) {
  return ends_after(starts, collective_ns(job.cost, bucket_operation(job),
                                          exchanged_bytes(job, bytes), job.ranks));
}

std::vector<int64_t> ends_of_gather(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes) {
  return ends_after(starts, all_gather_ns(job.cost, bytes, job.ranks));
}

std::vector<int64_t> ends_by_rounds(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes) {
  if (!has_rounds(job)) return ends_by_formula(job, starts, bytes);
  std::vector<int64_t> times = starts;
  for (int64_t& time : times) time += job.cost.overhead_ns;
  if (is_ring(job.cost.algorithm)) {
    through_ring(ring_costs(job, bytes), &times);
  } else {
    through_exchanges(job, bytes, &times);
  }
  return times;
}

namespace {

struct Message {
  int32_t from = 0, segment = 0;
};

// What each rank does in each round: whom it sends to, and for how long its link is busy.
class Pattern {
 public:
  Pattern(const Job& job, int64_t bytes) : ranks_(job.ranks) {
    const Algorithm algorithm = job.cost.algorithm;
    ring_ = is_ring(algorithm);
    if (ring_) {
      rounds_ = 2 * (ranks_ - 1);
      segments_ = algorithm == Algorithm::ring ? 1 : segments_of(bytes, ranks_);
      for (int64_t r = 0; r < ranks_; ++r)
        costs_.push_back(
            ring_round_ns(job.cost, link_of(job, static_cast<size_t>(r)), bytes, ranks_));
      return;
    }
    const bool halves = algorithm == Algorithm::halving_doubling;
    for (int64_t distance = 1; distance < ranks_; distance *= 2)
      add(job, bytes, distance, halves ? 2 * distance : 1, true);
    for (int64_t distance = ranks_ / 2; halves && distance > 0; distance /= 2)
      add(job, bytes, distance, 2 * distance, false);
    rounds_ = static_cast<int64_t>(distances_.size());
  }

  // Does each rank hear from one other only, round after round?
  bool in_order() const { return ring_; }
  int64_t rounds() const { return rounds_; }
  int64_t segments() const { return segments_; }
  int64_t receiver(int64_t rank, int64_t round) const {
    if (ring_) return rank + 1 == ranks_ ? 0 : rank + 1;
    return rank ^ distances_[static_cast<size_t>(round)];
  }
  // Time of the first `sent` segments of a round.
  int64_t busy_ns(int64_t rank, int64_t round, int64_t sent) const {
    const int64_t cost = costs_[static_cast<size_t>(ring_ ? rank : round)];
    return sent == segments_ ? cost : cost / segments_ * sent;
  }

 private:
  void add(const Job& job, int64_t bytes, int64_t distance, int64_t of, bool adds) {
    distances_.push_back(distance);
    costs_.push_back(exchange_ns(job.cost, {distance, of, adds}, bytes, ranks_));
  }

  const int64_t ranks_;
  bool ring_ = true;
  int64_t rounds_ = 0, segments_ = 1;
  std::vector<int64_t> costs_;  // of a ring by rank, else by round
  std::vector<int64_t> distances_;
};

class Messages {
 public:
  Messages(const Job& job, const std::vector<int64_t>& starts, int64_t bytes)
      : pattern_(job, bytes), states_(starts.size()), ends_(starts) {
    for (size_t r = 0; r < starts.size(); ++r) {
      const int64_t start_ns = starts[r] + job.cost.overhead_ns;
      states_[r].begin_ns = start_ns;
      send(static_cast<int32_t>(r), start_ns);
    }
  }

  // Everything that arrives until then.
  void run(int64_t until_ns) {
    while (!queue_.empty()) {
      const auto [time_ns, message] = queue_.pop();
      if (time_ns > until_ns) return;
      arrive(time_ns, message);
    }
  }

  const std::vector<int64_t>& ends() const { return ends_; }
  int64_t arrived() const { return arrived_; }
  MessageProgress progress() const {
    MessageProgress progress{{}, pattern_.rounds() * pattern_.segments()};
    for (const State& state : states_) progress.got.push_back(state.got);
    return progress;
  }

 private:
  struct State {
    int64_t begin_ns = 0;    // of the round under way
    int64_t got = 0;         // messages, all rounds together
    uint64_t complete = 0;   // of exchanges: rounds whose message has come, a bit each
    int32_t round = 0;       // that it sends in
    int32_t rounds_got = 0;  // of a ring: complete rounds, in order
    bool sent = false;       // all of this round
  };

  // The next segment of the rank's round, each an event of its own.
  void send(int32_t rank, int64_t now_ns, int32_t segment = 0) {
    const State& state = states_[static_cast<size_t>(rank)];
    const int64_t at_ns =
        state.begin_ns + pattern_.busy_ns(rank, state.round, int64_t{segment} + 1);
    queue_.push(std::max(at_ns, now_ns), {rank, segment});
  }

  void arrive(int64_t time_ns, Message message) {
    ++arrived_;
    State& sender = states_[static_cast<size_t>(message.from)];
    const auto receiver = static_cast<int32_t>(pattern_.receiver(message.from, sender.round));
    State& other = states_[static_cast<size_t>(receiver)];
    ++other.got;
    if (message.segment + 1 < pattern_.segments())
      return send(message.from, time_ns, message.segment + 1);
    other.complete |= uint64_t{1} << (sender.round & 63);
    ++other.rounds_got;
    sender.sent = true;
    go_on(message.from, time_ns);
    go_on(receiver, time_ns);
  }

  bool has_round(const State& state) const {
    if (pattern_.in_order()) return state.rounds_got > state.round;
    return (state.complete >> state.round & 1) != 0;
  }

  void go_on(int32_t rank, int64_t time_ns) {
    State& state = states_[static_cast<size_t>(rank)];
    if (!state.sent || !has_round(state)) return;
    state.sent = false;
    state.begin_ns = time_ns;
    ends_[static_cast<size_t>(rank)] = time_ns;
    if (++state.round < pattern_.rounds()) send(rank, time_ns);
  }

  const Pattern pattern_;
  RadixHeap<Message> queue_;
  std::vector<State> states_;
  std::vector<int64_t> ends_;
  int64_t arrived_ = 0;
};

}  // namespace

std::vector<int64_t> ends_by_events(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes, int64_t* messages) {
  Messages all(job, starts, bytes);
  all.run(kMostNs * 2);
  if (messages != nullptr) *messages += all.arrived();
  return all.ends();
}

MessageProgress progress_at(const Job& job, const std::vector<int64_t>& starts, int64_t bytes,
                            int64_t at_ns) {
  Messages all(job, starts, bytes);
  all.run(at_ns);
  return all.progress();
}

}  // namespace lockstep
