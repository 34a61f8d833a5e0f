#include "scenarios/profiler/kineto_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "scenarios/base/median.h"
#include "scenarios/base/text.h"

namespace lockstep {
namespace {

constexpr const char* kTrainingAllowed =
    "steps of one training in PyTorch, by torch.profiler.profile(record_shapes=True)";

struct FoundBackward {
  TracedBackward times;
  std::vector<const TraceTraining*> gradients;
};

InputError unfit(const KinetoTrace& trace, const std::string& why) {
  return file_error(printable(trace.file), why, kTrainingAllowed);
}

// That of gradients; -1: of no one thread.
int64_t thread_of_gradients(const KinetoTrace& trace) {
  int64_t thread = -1;
  for (const TraceTraining& event : trace.training) {
    if (event.event != TrainingEvent::gradient || !event.defined) continue;
    if (thread >= 0 && thread != event.thread) return -1;
    thread = event.thread;
  }
  return thread;
}

std::vector<FoundBackward> backwards_on(const KinetoTrace& trace, int64_t thread) {
  std::vector<FoundBackward> found;
  int64_t last = std::numeric_limits<int64_t>::max();
  for (const TraceTraining& event : trace.training) {
    if (event.thread != thread) continue;
    const bool node = event.event == TrainingEvent::node;
    const bool gradient = event.event == TrainingEvent::gradient && event.defined;
    if (found.empty() ? node || gradient : node && event.sequence > last)
      found.emplace_back().times.begin_us = event.time.begin_us;
    if (node) last = event.sequence;
    if (gradient) found.back().gradients.push_back(&event);
    if (event.event == TrainingEvent::launch && !found.empty())
      found.back().times.launches.push_back(event.time);
  }
  std::erase_if(found, [](const FoundBackward& one) { return one.gradients.empty(); });
  return found;
}

bool alike(const TraceTraining* a, const TraceTraining* b) { return a->shape == b->shape; }

// Does the shorter one lack gradients at its begin, or at its end?
bool is_cut(const FoundBackward& shorter, const FoundBackward& whole, bool at_begin) {
  const auto &a = shorter.gradients, &b = whole.gradients;
  if (a.size() >= b.size()) return false;
  return at_begin ? std::equal(a.rbegin(), a.rend(), b.rbegin(), alike)
                  : std::equal(a.begin(), a.end(), b.begin(), alike);
}

void leave_out_cut(std::vector<FoundBackward>* found) {
  if (found->size() > 1 && is_cut(found->front(), (*found)[1], true)) found->erase(found->begin());
  if (found->size() > 1 && is_cut(found->back(), (*found)[found->size() - 2], false))
    found->pop_back();
}

std::string why_no_training(const std::vector<FoundBackward>& found) {
  const auto& first = found.front().gradients;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& gradients = found[i].gradients;
    for (const TraceTraining* gradient : gradients) {
      if (!gradient->shape) return "it does not say the shapes of gradients";
      if (gradient->dtype.empty()) return "gradients are of a type that no scenario has";
      if (gradient->dtype != first[0]->dtype)
        return fmt::format("gradients are of several types, {} and {}", first[0]->dtype,
                           gradient->dtype);
    }
    if (!std::equal(gradients.begin(), gradients.end(), first.begin(), first.end(), alike))
      return fmt::format(
          "backward {} of {} has {} gradients that are not the {} of the first, in their order",
          i + 1, found.size(), gradients.size(), first.size());
  }
  return "";
}

// When the forward before each backward began, of backwards in their order.
class Forwards {
 public:
  explicit Forwards(const KinetoTrace& trace) : trace_(trace) {}

  std::optional<double> before(double backward_us) {
    for (; step_ < trace_.steps.size() && trace_.steps[step_].begin_us <= backward_us; ++step_)
      bound(trace_.steps[step_].begin_us);
    for (; event_ < trace_.training.size(); ++event_) {
      const TraceTraining& event = trace_.training[event_];
      if (event.time.begin_us > backward_us) break;
      if (event.event == TrainingEvent::update) bound(event.time.end_us);
      if (event.event == TrainingEvent::forward) forward_us_ = event.time.begin_us;
    }
    return forward_us_ && (!last_us_ || *forward_us_ >= *last_us_) ? forward_us_ : last_us_;
  }
  // What ended, or a step that began: the forward is after it.
  void bound(double us) { last_us_ = std::max(last_us_.value_or(us), us); }

 private:
  const KinetoTrace& trace_;
  size_t step_ = 0, event_ = 0;
  std::optional<double> last_us_, forward_us_;
};

// When each gradient was there, from the begin of backward, without the launches before it.
std::vector<double> computing_us(const TracedBackward& backward) {
  std::vector<double> ready_us;
  double launching_us = 0;
  size_t launch = 0;
  for (const double ready : backward.ready_us) {
    for (; launch < backward.launches.size() && backward.launches[launch].end_us <= ready; ++launch)
      launching_us += backward.launches[launch].end_us - backward.launches[launch].begin_us;
    ready_us.push_back(std::max(0.0, ready - backward.begin_us - launching_us));
  }
  return ready_us;
}

KinetoTraining typed(const KinetoTrace& trace, std::vector<FoundBackward> found) {
  KinetoTraining training;
  for (const TraceTraining* gradient : found.front().gradients)
    training.shapes.push_back(*gradient->shape);
  training.dtype = found.front().gradients.front()->dtype;
  Forwards forwards(trace);
  for (FoundBackward& one : found) {
    TracedBackward& times = one.times;
    if (const auto forward_us = forwards.before(times.begin_us))
      times.forward_us = done_us(trace, *forward_us);
    times.begin_us = done_us(trace, times.begin_us);
    for (const TraceTraining* gradient : one.gradients)
      times.ready_us.push_back(done_us(trace, gradient->time.end_us));
    forwards.bound(one.gradients.back()->time.end_us);
    if (!trace.device_work.empty())
      times.launches.clear();  // of the CPU, which no kernel waits for
    training.backwards.push_back(std::move(times));
  }
  return training;
}

}  // namespace

double done_us(const KinetoTrace& trace, double cpu_us) {
  const auto& work = trace.device_work;
  const auto after = std::upper_bound(
      work.begin(), work.end(), cpu_us,
      [](double time, const TraceDeviceWork& one) { return time < one.launched_us; });
  return after == work.begin() ? cpu_us : std::max(cpu_us, std::prev(after)->done_us);
}

Expected<KinetoTraining> training_of(const KinetoTrace& trace) {
  const bool any = std::any_of(trace.training.begin(), trace.training.end(), [](const auto& event) {
    return event.event == TrainingEvent::gradient;
  });
  if (!any) return unfit(trace, "it holds no gradient (torch::autograd::AccumulateGrad)");
  const bool shapes =
      std::any_of(trace.training.begin(), trace.training.end(),
                  [](const TraceTraining& event) { return event.shape && event.defined; });
  if (!shapes) return unfit(trace, "it does not say the shapes of gradients");
  const int64_t thread = thread_of_gradients(trace);
  if (thread < 0)
    return unfit(trace, "gradients come on several threads, as of a model on several devices");
  std::vector<FoundBackward> found = backwards_on(trace, thread);
  leave_out_cut(&found);
  if (const std::string why = why_no_training(found); !why.empty()) return unfit(trace, why);
  return typed(trace, std::move(found));
}

GradientTimes gradient_times(const KinetoTraining& training) {
  GradientTimes times;
  std::vector<double> forwards;
  for (const TracedBackward& one : training.backwards)
    if (one.forward_us) forwards.push_back(std::max(0.0, one.begin_us - *one.forward_us));
  if (!forwards.empty()) times.forward_ms = median_of(forwards) * 1e-3;
  std::vector<std::vector<double>> ready(training.shapes.size());
  for (const TracedBackward& one : training.backwards) {
    const std::vector<double> own = computing_us(one);
    for (size_t g = 0; g < own.size(); ++g) ready[g].push_back(own[g]);
  }
  double last_ms = 0;
  for (std::vector<double>& of_all : ready) {
    last_ms = std::max(last_ms, median_of(std::move(of_all)) * 1e-3);
    times.ready_ms.push_back(last_ms);
  }
  return times;
}

}  // namespace lockstep
