#include "reducer/base/join_poll.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

namespace lockstep {
namespace {

const int64_t* begin_of(const at::Tensor& answers) { return answers.data_ptr<int64_t>(); }
const int64_t* end_of(const at::Tensor& answers) { return begin_of(answers) + answers.numel(); }

}  // namespace

JoinPoll::JoinPoll(Communicator& communicator, std::chrono::milliseconds timeout)
    : communicator_(communicator), timeout_(timeout) {}

void JoinPoll::start(Answer own) {
  own_ = at::full({1}, static_cast<int64_t>(own), at::kLong);
  answers_ = at::empty({communicator_.world_size()}, at::kLong);
  work_ = communicator_.all_gather(answers_, own_, deadline_after(timeout_));
}

int64_t JoinPoll::active(const at::Tensor& answers) {
  return std::count_if(begin_of(answers), end_of(answers), [](int64_t answer) {
    return answer >= static_cast<int64_t>(Answer::unsynchronized);
  });
}

int64_t JoinPoll::root() const {
  const int64_t active = largest_with(Answer::unsynchronized);
  return active >= 0 ? active : std::max<int64_t>(0, largest_with(Answer::leaving));
}

bool JoinPoll::synchronizes() const { return largest_with(Answer::synchronized) >= 0; }

int64_t JoinPoll::largest_with(Answer least) const {
  int64_t largest = -1;
  for (const int64_t* at = begin_of(answers_); at != end_of(answers_); ++at)
    if (*at >= static_cast<int64_t>(least)) largest = at - begin_of(answers_);
  return largest;
}

}  // namespace lockstep
