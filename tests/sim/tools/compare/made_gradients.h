#pragma once

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

// Gradient logs as the agent writes them: one parameter `w`, one number a rank and step and
// element.
struct MadeLog {
  std::string id = "a", follows;
  std::string name = "w";
  std::vector<std::vector<std::vector<float>>> local;  // [step][rank][element]
  std::vector<std::vector<float>> reduced;             // [step][element]
  std::vector<std::vector<float>> given = {};          // empty: not clipped
  std::string start = "7";
  std::vector<std::string> updated = {};  // checksums by step; beyond: the step's number
  std::vector<double> rates = {};         // by step; beyond: 0.1
  bool ends = true;
  std::string why;
  int64_t backwards = 1;
  size_t other_replica = 0;  // a rank whose weights are others; 0: none

  // Files by name.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (size_t rank = 0; rank < local[0].size(); ++rank) {
      const auto [lines, numbers] = of_rank(rank);
      all[fmt::format("gradients-{}.jsonl", rank)] = lines;
      all[fmt::format("gradients-{}.bin", rank)] = numbers;
    }
    return all;
  }

 private:
  static std::string bytes(const std::vector<float>& values) {
    std::string text(values.size() * sizeof(float), '\0');
    std::memcpy(text.data(), values.data(), text.size());
    return text;
  }

  std::string tensor(const char* kind, size_t step, const std::vector<float>& values,
                     std::string* numbers) const {
    const size_t at = numbers->size();
    *numbers += bytes(values);
    return fmt::format(
        R"({{"kind": "{}", "step": {}, "name": "{}", "dtype": "float32", "first": 0, "elements": {}, "at": {}, "of": {}, "backwards": {}}})"
        "\n",
        kind, step + 1, name, values.size(), at, values.size(), backwards);
  }

  std::pair<std::string, std::string> of_rank(size_t rank) const {
    std::string numbers;
    std::string lines = fmt::format(
        R"({{"kind": "head", "version": 1, "rank": {}, "world": {}, "torch": "2.15", "id": "{}", "follows": "{}"}})"
        "\n",
        rank, local[0].size(), id, follows);
    for (size_t step = 0; step < local.size(); ++step) {
      if (step == 0 && rank == 0)
        lines += fmt::format(R"({{"kind": "start", "name": "{}", "checksum": "{}"}})"
                             "\n",
                             name, start);
      lines += tensor("local", step, local[step][rank], &numbers);
      if (rank == 0) lines += of_rank_0(step, &numbers);
      if (rank > 0 && rank == other_replica)
        lines += fmt::format(R"({{"kind": "replica", "step": {}, "name": "{}", "checksum": "77"}})"
                             "\n",
                             step + 1, name);
      lines += fmt::format(R"({{"kind": "step", "step": {}}})"
                           "\n",
                           step + 1);
    }
    if (ends)
      lines += fmt::format(R"({{"kind": "end", "steps": {}, "bytes": {}, "why": "{}"}})"
                           "\n",
                           local.size(), numbers.size(), why);
    return {lines, numbers};
  }

  std::string of_rank_0(size_t step, std::string* numbers) const {
    std::string lines = tensor("reduced", step, reduced[step], numbers);
    if (!given.empty()) lines += tensor("given", step, given[step], numbers);
    lines += fmt::format(R"({{"kind": "rates", "step": {}, "lr": [{}]}})"
                         "\n",
                         step + 1, step < rates.size() ? rates[step] : 0.1);
    return lines +
           fmt::format(R"({{"kind": "updated", "step": {}, "name": "{}", "checksum": "{}"}})"
                       "\n",
                       step + 1, name,
                       step < updated.size() ? updated[step] : std::to_string(step));
  }
};

}  // namespace lockstep::testing
