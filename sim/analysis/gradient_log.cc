#include "sim/analysis/gradient_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kIndexBytesMost = int64_t{64} << 20;
constexpr int64_t kNumbersBytesMost = int64_t{1} << 30;  // what the agent writes at most
constexpr int64_t kRanksMost = 64, kStepsMost = 1'000'000, kVersion = 1;

std::string index_path(const std::string& folder, int64_t rank) {
  return fmt::format("{}/gradients-{}.jsonl", folder, rank);
}

int64_t bytes_of(GradientType type) { return type == GradientType::float32 ? 4 : 8; }

// Takes one rank's lines. Its members throw nlohmann::json::exception for what is of another type;
// those that take a kind return false for what the agent does not write.
class Lines {
 public:
  Lines(GradientLog* log, int64_t rank) : log_(*log), rank_(rank) {}

  std::string take(const Json& line) {
    const std::string kind = line.at("kind").get<std::string>();
    ended_ = false;  // an end is the last line
    if (kind == "head") return head(line) ? "" : "it is the head of another rank or run";
    if (!headed_) return "it comes before the head";
    if (kind == "start") return start(line) ? "" : "its checksum is no number";
    if (kind == "local" || kind == "reduced" || kind == "given")
      return gradient(line, kind) ? "" : "its step, type, size or place is impossible";
    if (kind == "rates") return rates(line) ? "" : "its step is impossible";
    if (kind == "updated" || kind == "replica")
      return updated(line, kind == "replica") ? "" : "its step or checksum is impossible";
    if (kind == "step") return step(line) ? "" : "its step is not the next one";
    return kind == "end" && end(line) ? "" : "its kind is unknown";
  }
  bool ended() const { return headed_ && ended_; }
  int64_t whole_steps() const { return whole_; }

 private:
  bool head(const Json& line) {
    const int64_t world = whole_number(line.at("world"));
    if (headed_ || world < 1 || world > kRanksMost || whole_number(line.at("rank")) != rank_ ||
        whole_number(line.at("version")) != kVersion)
      return false;
    if (rank_ == 0) {
      log_.world = world;
      log_.id = line.at("id").get<std::string>();
      log_.follows = line.at("follows").get<std::string>();
      log_.torch = line.at("torch").get<std::string>();
    }
    headed_ = true;
    return world == log_.world && line.at("id").get<std::string>() == log_.id;
  }

  bool start(const Json& line) {
    const std::string name = line.at("name").get<std::string>();
    if (log_.start.find(name) == log_.start.end()) log_.names.push_back(name);
    return add_checksum(line, &log_.start[name]);
  }

  GradientStep* step_of(const Json& line) {
    const int64_t step = whole_number(line.at("step"));
    const auto known = static_cast<int64_t>(log_.steps.size());
    if (step < 1 || step > kStepsMost || step > known + 1 || step < whole_ + 1) return nullptr;
    if (step > known) {
      log_.steps.emplace_back();
      log_.steps.back().local.resize(static_cast<size_t>(log_.world));
      log_.steps.back().replicas.resize(static_cast<size_t>(log_.world));
    }
    return &log_.steps[static_cast<size_t>(step - 1)];
  }

  bool gradient(const Json& line, const std::string& kind) {
    GradientStep* step = step_of(line);
    if (step == nullptr) return false;
    const bool local = kind == "local";
    auto& all = local               ? step->local[static_cast<size_t>(rank_)]
                : kind == "reduced" ? step->reduced
                                    : step->given;
    LoggedGradient& found = all[line.at("name").get<std::string>()];
    const bool first = found.parts.empty();
    const std::string type = line.at("dtype").get<std::string>();
    if (type != "float32" && type != "float64") return false;
    const auto of = type == "float32" ? GradientType::float32 : GradientType::float64;
    const int64_t elements = whole_number(line.at("of"));
    if (!first && (local || found.type != of || found.elements != elements)) return false;
    found.type = of;
    found.elements = elements;
    if (local) found.backwards = whole_number(line.at("backwards"));
    found.parts.push_back({rank_, whole_number(line.at("first")), whole_number(line.at("elements")),
                           whole_number(line.at("at"))});
    return is_within(found, found.parts.back());
  }

  bool is_within(const LoggedGradient& of, const GradientPart& part) const {
    const int64_t size = log_.numbers[static_cast<size_t>(rank_)].bytes;
    return of.elements >= 0 && of.elements <= kNumbersBytesMost && part.first >= 0 &&
           part.elements >= 0 && part.elements <= of.elements &&
           part.first <= of.elements - part.elements && part.at >= 0 && part.at <= size &&
           part.elements <= (size - part.at) / bytes_of(of.type);
  }

  bool rates(const Json& line) {
    GradientStep* step = step_of(line);
    if (step != nullptr && rank_ == 0) step->rates = line.at("lr").get<std::vector<double>>();
    return step != nullptr;
  }

  bool updated(const Json& line, bool replica) {
    GradientStep* step = step_of(line);
    if (step == nullptr) return false;
    auto& sums = replica ? step->replicas[static_cast<size_t>(rank_)] : step->updated;
    return add_checksum(line, &sums[line.at("name").get<std::string>()]);
  }

  // A whole number below 2^64 as text; those of the parts of a tensor add up.
  static bool add_checksum(const Json& line, uint64_t* sum) {
    const auto value = number_in<uint64_t>(line.at("checksum").get<std::string>());
    *sum += value.value_or(0);
    return value.has_value();
  }

  bool step(const Json& line) {
    if (step_of(line) == nullptr || whole_number(line.at("step")) != whole_ + 1) return false;
    ++whole_;
    return true;
  }

  bool end(const Json& line) {
    if (log_.stopped.empty()) log_.stopped = line.at("why").get<std::string>();
    ended_ = true;
    return true;
  }

  GradientLog& log_;
  const int64_t rank_;
  int64_t whole_ = 0;
  bool headed_ = false, ended_ = false;
};

// Reads one rank's files.
InputErrors read_rank(int64_t rank, GradientLog* log, int64_t* whole_steps) {
  auto numbers =
      open_foreign_file(fmt::format("{}/gradients-{}.bin", log->folder, rank), kNumbersBytesMost);
  if (!numbers) {  // without an index as well, that is what a user looks for
    const auto index = open_foreign_file(index_path(log->folder, rank), kIndexBytesMost);
    return index ? numbers.errors() : index.errors();
  }
  log->numbers.push_back(std::move(numbers.value()));
  Lines lines(log, rank);
  InputErrors errors =
      read_json_lines(index_path(log->folder, rank), "line of lockstep run --gradients",
                      {kIndexBytesMost}, [&](const Json& line) { return lines.take(line); });
  log->ended = log->ended && lines.ended();
  *whole_steps = std::min(*whole_steps, lines.whole_steps());
  return errors;
}

// Do its parts make the whole tensor, without gaps and overlaps?
bool put_in_order(LoggedGradient* gradient) {
  std::sort(gradient->parts.begin(), gradient->parts.end(),
            [](const GradientPart& a, const GradientPart& b) {
              return std::pair(a.first, a.elements) < std::pair(b.first, b.elements);
            });
  int64_t next = 0;
  for (const GradientPart& part : gradient->parts) {
    if (part.first != next && part.elements > 0) return false;
    next += part.elements;
  }
  return next == gradient->elements;
}

void check_steps(int64_t whole_steps, GradientLog* log, InputErrors* errors) {
  for (size_t i = 0; i < log->steps.size(); ++i) {
    GradientStep& step = log->steps[i];
    step.whole = static_cast<int64_t>(i) < whole_steps;
    if (!step.whole) continue;
    std::vector<std::map<std::string, LoggedGradient>*> all = {&step.reduced, &step.given};
    for (auto& of_rank : step.local) all.push_back(&of_rank);
    for (auto* gradients : all)
      for (auto& [name, gradient] : *gradients)
        if (!put_in_order(&gradient))
          errors->push_back(file_error(
              log->folder,
              fmt::format("step {}: the parts of {} do not make the whole tensor", i + 1, name)));
    if (errors->size() > kMostErrors) return;
  }
}

}  // namespace

bool is_gradient_log(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(index_path(folder, 0), error);
}

Expected<GradientLog> read_gradient_log(const std::string& folder) {
  GradientLog log;
  log.folder = folder;
  log.ended = true;
  int64_t whole_steps = kStepsMost;
  InputErrors errors = read_rank(0, &log, &whole_steps);
  if (errors.empty() && log.world == 0)
    errors.push_back(file_error(index_path(folder, 0), "is empty: no optimizer step was made"));
  for (int64_t rank = 1; rank < log.world && errors.empty(); ++rank)
    errors = read_rank(rank, &log, &whole_steps);
  if (errors.empty()) check_steps(whole_steps, &log, &errors);
  if (!errors.empty()) return errors;
  return log;
}

template <class T>
std::vector<T> read_gradient(const GradientLog& log, const LoggedGradient& gradient, int64_t first,
                             int64_t count) {
  std::vector<T> all(static_cast<size_t>(count));
  for (const GradientPart& part : gradient.parts) {
    const int64_t begin = std::max(first, part.first);
    const int64_t end = std::min(first + count, part.first + part.elements);
    if (begin >= end) continue;
    const auto size = static_cast<int64_t>(sizeof(T));
    if (!read_at(log.numbers[static_cast<size_t>(part.rank)].fd.get(),
                 part.at + (begin - part.first) * size, all.data() + (begin - first),
                 static_cast<size_t>((end - begin) * size)))
      return {};
  }
  return all;
}

template std::vector<float> read_gradient<float>(const GradientLog&, const LoggedGradient&, int64_t,
                                                 int64_t);
template std::vector<double> read_gradient<double>(const GradientLog&, const LoggedGradient&,
                                                   int64_t, int64_t);

}  // namespace lockstep
