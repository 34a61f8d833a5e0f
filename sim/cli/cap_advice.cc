#include "sim/cli/cap_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "sim/calibrate/alternatives.h"

namespace lockstep {
namespace {

using Lines = std::vector<const SimulatedLine*>;

bool has_cap_mb(const SimulatedLine& line, double cap_mb) {
  return line.cap_mb == cap_mb || std::find(line.same_caps_mb.begin(), line.same_caps_mb.end(),
                                            cap_mb) != line.same_caps_mb.end();
}

std::map<int64_t, Lines> by_world(const std::vector<SimulatedLine>& lines) {
  std::map<int64_t, Lines> worlds;
  for (const SimulatedLine& line : lines)
    if (line.cap_mb && line.numbers.steps > 0) worlds[line.ranks].push_back(&line);
  return worlds;
}

double step_ms(const SimulatedLine& line) { return line.numbers.step_ms; }

// Without alternatives of the machine: of any two lines.
double general_error(const std::optional<Accuracy>& accuracy) {
  if (!accuracy) return kLeastGain;
  return std::max(kLeastGain, accuracy->cap_error.value_or(2 * accuracy->step_error));
}

std::string told(const SimulatedLine& line) {
  std::string text = fmt::format("{:.2f} ms a step", step_ms(line));
  if (!line.step_error) return text;
  const std::vector<double>& others = line.of_alternatives;
  double low = 1 - *line.step_error, high = 1 + *line.step_error;
  if (!others.empty()) {  // slower by twice is not faster by as much
    low = std::min(1 - kLeastError, *std::min_element(others.begin(), others.end()));
    high = std::max(1 + kLeastError, *std::max_element(others.begin(), others.end()));
  }
  return text + fmt::format(" ({:.2f} .. {:.2f})", step_ms(line) * std::max(0.0, low),
                            step_ms(line) * high);
}

// "2, 4, 8".
std::string listed(const std::vector<double>& caps_mb) {
  std::string text;
  for (const double cap : caps_mb) text += fmt::format("{}{}", text.empty() ? "" : ", ", cap);
  return text;
}

CapAdvice same_buckets(const SimulatedLine& line) {
  CapAdvice advice;
  advice.ranks = line.ranks;
  advice.best_mb = *line.cap_mb;
  advice.alike_mb = line.same_caps_mb;
  advice.text = fmt::format("at {} ranks: all of these caps give the same buckets", line.ranks);
  return advice;
}

class Advice {
 public:
  Advice(const Lines& lines, std::optional<double> usual_mb,
         const std::optional<Accuracy>& accuracy)
      : lines_(lines), accuracy_(accuracy), general_error_(general_error(accuracy)) {
    best_ = *std::min_element(lines.begin(), lines.end(), [](const auto* a, const auto* b) {
      return step_ms(*a) < step_ms(*b);
    });
    for (const SimulatedLine* line : lines)
      if (usual_mb && has_cap_mb(*line, *usual_mb)) usual_ = line;
    usual_mb_ = usual_mb.value_or(0);
  }

  CapAdvice take() {
    CapAdvice advice;
    advice.ranks = best_->ranks;
    advice.best_mb = *best_->cap_mb;
    for (const SimulatedLine* line : lines_)
      if (line != best_ && !is_slower(*line)) advice.alike_mb.push_back(*line->cap_mb);
    if (usual_ != nullptr) {
      advice.usual_mb = usual_mb_;
      advice.gain = gain_over(*usual_);
      if (accuracy_) advice.gain_error = error_over(*usual_);
    }
    const bool faster =
        usual_ == nullptr ? advice.alike_mb.size() + 1 < lines_.size() : is_slower(*usual_);
    if (faster) advice.cap_mb = best_->cap_mb;
    advice.text = fmt::format("at {} {}: ", best_->ranks, best_->ranks == 1 ? "rank" : "ranks") +
                  (faster ? recommended(advice) : kept(advice));
    return advice;
  }

 private:
  // The part by which the fastest is faster than this.
  double gain_over(const SimulatedLine& line) const {
    return step_ms(*best_) > 0 ? step_ms(line) / step_ms(*best_) - 1 : 0;
  }
  // How far that may be off.
  double error_over(const SimulatedLine& line) const {
    if (line.of_alternatives.empty()) return general_error_;
    return (1 + gain_over(line)) * widest(line.of_alternatives, best_->of_alternatives);
  }
  bool is_slower(const SimulatedLine& line) const { return gain_over(line) > error_over(line); }

  std::string recommended(const CapAdvice& advice) const {
    std::string text = fmt::format("bucket_cap_mb {}, {}", *best_->cap_mb, told(*best_));
    if (usual_ != nullptr) {
      text += fmt::format(", {:.1f} % ", *advice.gain * 100);
      if (accuracy_)
        text += fmt::format("({:.1f} .. {:.1f}) ", (*advice.gain - *advice.gain_error) * 100,
                            (*advice.gain + *advice.gain_error) * 100);
      text += fmt::format("faster than {}", usual_mb_) + tails();
    }
    if (!advice.alike_mb.empty())
      text += fmt::format("; cannot tell {} from it", listed(advice.alike_mb));
    return text;
  }

  // Where they differ in two decimals.
  std::string tails() const {
    const std::string own = fmt::format("{:.2f}", best_->tail_mb);
    const std::string usual = fmt::format("{:.2f}", usual_->tail_mb);
    return own == usual ? "" : fmt::format("; the tail bucket has {} MB instead of {}", own, usual);
  }

  std::string kept(const CapAdvice& advice) const {
    if (usual_ == nullptr)
      return fmt::format("cannot tell which cap is faster: {}", why(listed(caps_mb())));
    const std::string keep = fmt::format("keep bucket_cap_mb {}, {}", usual_mb_, told(*usual_));
    if (usual_ == best_ && advice.alike_mb.empty()) return keep + ": no other is as fast";
    if (!accuracy_) return keep + fmt::format(": no other is faster by {:.1f} %", kLeastGain * 100);
    std::vector<double> alike = advice.alike_mb;
    alike.push_back(*best_->cap_mb);
    std::sort(alike.begin(), alike.end());
    return keep + fmt::format(": cannot tell which is faster of {}", why(listed(alike)));
  }

  // The widest, of those that cannot be told from the fastest.
  std::string why(const std::string& caps) const {
    double most = 0;
    for (const SimulatedLine* line : lines_)
      if (line != best_ && !is_slower(*line)) most = std::max(most, error_over(*line));
    return fmt::format("{}, within {:.1f} % of each other", caps, most * 100);
  }

  std::vector<double> caps_mb() const {
    std::vector<double> caps;
    for (const SimulatedLine* line : lines_) caps.push_back(*line->cap_mb);
    return caps;
  }

  const Lines& lines_;
  const std::optional<Accuracy>& accuracy_;
  const double general_error_;
  const SimulatedLine* best_ = nullptr;
  const SimulatedLine* usual_ = nullptr;  // null: no line is of the usual cap
  double usual_mb_ = 0;
};

}  // namespace

std::vector<CapAdvice> advise(const std::vector<SimulatedLine>& lines,
                              std::optional<double> usual_mb,
                              const std::optional<Accuracy>& accuracy) {
  std::vector<CapAdvice> advice;
  for (const auto& [ranks, of_world] : by_world(lines)) {
    const SimulatedLine& only = *of_world.front();
    if (of_world.size() > 1)
      advice.push_back(Advice(of_world, usual_mb, accuracy).take());
    else if (!only.same_caps_mb.empty())
      advice.push_back(same_buckets(only));
  }
  return advice;
}

}  // namespace lockstep
