// Compute and collectives that are under way at once hold each other up.
#include <algorithm>

#include "sim/des/collective.h"
#include "sim/des/walk.h"

namespace lockstep {
namespace {

struct Transfer {
  int64_t time_ns = 0, left_ns = 0;  // of the work
};

// Until then work takes `slow` times as long, in 2^-24.
Transfer slower_until(int64_t end_ns, int64_t slow, const Transfer& from) {
  const int64_t there = std::max<int64_t>(end_ns - from.time_ns, 0);
  if (scaled(from.left_ns, slow) <= there) return {from.time_ns + scaled(from.left_ns, slow), 0};
  const auto done = static_cast<int64_t>(static_cast<__int128>(there) * kOne / slow);
  return {from.time_ns + there, from.left_ns - done};
}

}  // namespace

// When so much work is done that began then, where it goes slower under every collective of the
// step so far, and under one more from `also_from_ns` on without end. From the begin each time, so
// that it depends on nothing else.
int64_t Walk::slowed(int64_t begin_ns, int64_t work_ns, int64_t also_from_ns) const {
  if (job_.overlap_slowdown == 0) return begin_ns + work_ns;
  const int64_t slow = kOne + job_.overlap_slowdown;
  Transfer now{begin_ns, work_ns};
  const auto free_until = [&](int64_t end_ns) {
    const int64_t free = std::clamp<int64_t>(end_ns - now.time_ns, 0, now.left_ns);
    now = {now.time_ns + free, now.left_ns - free};
  };
  for (const Span& span : spans_) {
    free_until(span.begin_ns);
    now = slower_until(span.end_ns, slow, now);
    if (now.left_ns == 0) return now.time_ns;
  }
  free_until(also_from_ns);
  return now.time_ns + scaled(now.left_ns, slow);
}

// When the last rank's backward ends if a collective that starts then goes on for longer. One that
// ends before was under way beside compute all the time, so that this is all it has to know.
int64_t Walk::compute_ends_beside(int64_t start_ns) const {
  int64_t end_ns = 0;
  for (size_t m = 0; m < members_.size(); ++m)
    end_ns =
        std::max(end_ns, slowed(compute_begin_[m],
                                work_of(m, job_.backward_ns, pass_work_ns_, draws_->ranks[m].late),
                                start_ns));
  return end_ns;
}

// The end of a transfer of so long a time that goes slower until compute has ended.
int64_t Walk::stretched(int64_t begin_ns, int64_t transfer_ns, int64_t compute_end_ns) const {
  const Transfer end =
      slower_until(compute_end_ns, kOne + job_.comm_slowdown, {begin_ns, transfer_ns});
  return end.time_ns + end.left_ns;
}

// Collectives that are under way at once share one wire: the latency of one hides behind the bytes
// of the one before, but not bytes behind bytes. All are slower while any rank computes.
void Walk::share(size_t place, int64_t wire_ns, int64_t start_ns,
                 std::vector<int64_t>* ends) const {
  const bool turns = job_.channels > 1 && place > 0;
  const int64_t busy_ns = turns ? wire_ns : 0;
  const int64_t compute_end_ns = job_.comm_slowdown > 0 ? compute_ends_beside(start_ns) : 0;
  for (size_t m = 0; m < ends->size(); ++m) {
    int64_t& end_ns = (*ends)[m];
    if (job_.comm_slowdown > 0) end_ns = stretched(start_ns, end_ns - start_ns, compute_end_ns);
    if (turns) end_ns = std::max(end_ns, stretched(done_[place - 1][m], busy_ns, compute_end_ns));
  }
}

}  // namespace lockstep
