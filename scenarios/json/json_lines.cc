#include "scenarios/json/json_lines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

InputErrors take_json(std::string_view text, const std::string& path, const TakeJson& take) {
  const auto json = parse_foreign_json(text, path, "");
  if (!json) return json.errors();
  std::string wrong;
  try {
    wrong = take(json.value());
  } catch (const nlohmann::json::exception& error) {
    wrong = problem_of(error);
  }
  return wrong.empty() ? InputErrors() : InputErrors{file_error(path, wrong)};
}

InputErrors with_place(InputErrors errors, const std::string& what, int64_t line) {
  for (InputError& error : errors) {
    if (line > 0) error.line = line;
    error.message = fmt::format("is no {}: {}", what, error.message);
  }
  return errors;
}

}  // namespace

InputErrors read_json_facts(const std::string& path, const std::string& what, int64_t most_bytes,
                            const TakeJson& take) {
  const auto text = read_foreign_file(path, most_bytes);
  return text ? with_place(take_json(text.value(), path, take), what, 0) : text.errors();
}

InputErrors read_json_lines(const std::string& path, const std::string& what,
                            const JsonLineLimits& limits, const TakeJson& take) {
  const auto text = read_foreign_file(path, limits.bytes);
  if (!text) return text.errors();
  InputErrors errors;
  std::string_view rest = text.value();
  for (int64_t line = 1, size; errors.empty(); ++line) {
    if ((size = static_cast<int64_t>(rest.find('\n'))) < 0) break;
    if (line > limits.lines)
      errors = {file_error(path, fmt::format("there are more than {}", limits.lines))};
    else if (size == 0 || size > limits.line_bytes)
      errors = {file_error(path, size == 0 ? "it is empty" : "it is too long")};
    else
      errors = take_json(rest.substr(0, static_cast<size_t>(size)), path, take);
    errors = with_place(std::move(errors), what, line);
    rest.remove_prefix(static_cast<size_t>(size) + 1);
  }
  return errors;
}

}  // namespace lockstep
