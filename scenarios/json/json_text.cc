#include "scenarios/json/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <map>

#include "scenarios/base/text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Position = Places::Position;

class Reader {
 public:
  Reader(std::string_view text, const std::string& file, Places* places, InputErrors* errors,
         const JsonLimits& limits)
      : text_(text), file_(file), places_(places), errors_(errors), limits_(limits) {}

  bool document(Json* out) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    if (!skip()) return false;
    if (ended()) return fail(at_ == 0 ? "the file is empty" : "there is no value", "an object");
    if (!value("", {}, 0, out) || !skip()) return false;
    if (!ended()) return fail(fmt::format("{} after the end", seen()), "nothing");
    return true;
  }

 private:
  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }
  Position here() const { return {line_, column_}; }

  void advance(size_t bytes = 1) {
    for (; bytes > 0 && !ended(); --bytes, ++at_) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '\n') {
        ++line_;
        column_ = 1;
      } else if ((byte & 0xc0) != 0x80) {
        ++column_;
      }
    }
  }

  // What stands here, as a user would name it.
  std::string seen() const {
    if (ended()) return "the file ends here";
    const size_t length = utf8_length(text_.substr(at_));
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (length == 0 || byte < 0x20 || byte == 0x7f)
      return fmt::format("unexpected byte 0x{:02x}", byte);
    return fmt::format("unexpected {}", text_.substr(at_, length));
  }

  bool fail_at(Position where, std::string message, std::string allowed = "") {
    errors_->push_back(
        {file_, where.line, where.column, "", std::move(message), std::move(allowed)});
    return false;
  }
  bool fail(std::string message, std::string allowed = "") {
    return fail_at(here(), std::move(message), std::move(allowed));
  }

  // White space and comments.
  bool skip() {
    for (;;) {
      while (is_one_of(" \t\r\n")) advance();
      const std::string_view rest = text_.substr(std::min(at_, text_.size()), 2);
      if (rest != "//" && rest != "/*") return true;
      if (!(rest == "//" ? line_comment() : comment())) return false;
    }
  }

  bool is_one_of(std::string_view letters) const {
    return !ended() && letters.find(peek()) != std::string_view::npos;
  }

  // In a comment everything is let pass but control characters: they hide what is read.
  bool comment_letter() {
    if (static_cast<unsigned char>(peek()) < 0x20 && !is_one_of("\t\r\n"))
      return fail(seen(), "text in UTF-8");
    advance();
    return true;
  }

  bool line_comment() {
    while (!ended() && !is_one_of("\r\n"))
      if (!comment_letter()) return false;
    return true;
  }

  bool comment() {
    const Position start = here();
    for (advance(2); !text_.substr(at_).starts_with("*/");) {
      if (ended()) return fail_at(start, "this comment does not end", "*/");
      if (!comment_letter()) return false;
    }
    advance(2);
    return true;
  }

  bool value(const std::string& pointer, Position key, int depth, Json* out) {
    if (!within_limits(pointer)) return false;
    if (places_ != nullptr) places_->add(pointer, key, here());
    if (depth >= kDeepestNesting && (peek() == '{' || peek() == '['))
      return fail(fmt::format("nested deeper than {} levels", kDeepestNesting));
    if (peek() == '{') return object(pointer, depth, out);
    if (peek() == '[') return list(pointer, depth, out);
    if (peek() == '"') {
      std::string text;
      if (!string(&text)) return false;
      *out = std::move(text);
      return true;
    }
    if (peek() == '-' || (peek() >= '0' && peek() <= '9')) return number(out);
    return word(out);
  }

  bool within_limits(const std::string& pointer) {
    if (++values_ > limits_.values)
      return fail("there are too many values", fmt::format("at most {}", limits_.values));
    if (places_ == nullptr) return true;
    places_bytes_ += pointer.size();
    return places_bytes_ <= limits_.places_bytes ||
           fail("keys are too long for so many values below them");
  }

  // Pointers are only made for messages and places.
  std::string below(const std::string& pointer, const std::string& name) const {
    return places_ == nullptr ? std::string() : pointer_join(pointer, name);
  }

  bool word(Json* out) {
    const std::pair<std::string_view, Json> words[] = {
        {"true", true}, {"false", false}, {"null", nullptr}};
    for (const auto& [text, meaning] : words) {
      if (!text_.substr(at_).starts_with(text)) continue;
      advance(text.size());
      *out = meaning;
      return true;
    }
    return fail(seen(), "a value");
  }

  // After a member: true goes on at the next one, `done` tells that `close` was there.
  bool next_member(char close, bool* done) {
    if (!skip()) return false;
    if (peek() == close) {
      advance();
      *done = true;
      return true;
    }
    if (peek() != ',') return fail(seen(), fmt::format(", or {}", close));
    const Position comma = here();
    advance();
    if (!skip()) return false;
    if (peek() == close) return fail_at(comma, fmt::format("unexpected comma before {}", close));
    return true;
  }

  bool object(const std::string& pointer, int depth, Json* out) {
    *out = Json::object();
    std::map<std::string, Position, std::less<>> seen_keys;
    advance();
    if (!skip()) return false;
    bool done = peek() == '}';
    if (done) advance();
    while (!done) {
      const Position key = here();
      std::string name;
      if (peek() != '"') return fail(seen(), "a key in quotes");
      if (!string(&name) || !skip()) return false;
      if (peek() != ':') return fail(seen(), ":");
      advance();
      if (!skip()) return false;
      const std::string way = below(pointer, name);
      const auto [first, is_new] = seen_keys.emplace(name, key);
      if (!is_new && !duplicate(way, name, key, first->second)) return false;
      Json member;
      if (!value(way, key, depth + 1, &member)) return false;
      // Not by operator[], which looks through all members before it adds one.
      if (is_new) out->get_ref<Json::object_t&>().emplace_back(std::move(name), std::move(member));
      if (!next_member('}', &done)) return false;
    }
    return true;
  }

  // False where it is one too many.
  bool duplicate(const std::string& pointer, const std::string& name, Position again,
                 Position first) {
    fail_at(again, fmt::format("duplicate key \"{}\"; the first is at {}:{}", shortened(name),
                               first.line, first.column));
    errors_->back().pointer = printable(pointer);
    if (errors_->size() < kMostErrors) return true;
    return fail_at(again, "too many errors: the rest is not read");
  }

  bool list(const std::string& pointer, int depth, Json* out) {
    *out = Json::array();
    advance();
    if (!skip()) return false;
    bool done = peek() == ']';
    if (done) advance();
    while (!done) {
      Json member;
      const std::string way = below(pointer, std::to_string(out->size()));
      if (!value(way, here(), depth + 1, &member)) return false;
      out->push_back(std::move(member));
      if (!next_member(']', &done)) return false;
    }
    return true;
  }

  bool string(std::string* out) {
    const Position start = here();
    advance();
    for (;;) {
      if (ended() || peek() == '\n') return fail_at(start, "this string does not end", "\"");
      const size_t length = utf8_length(text_.substr(at_));
      if (length == 0 || static_cast<unsigned char>(peek()) < 0x20)
        return fail(seen(), "text in UTF-8");
      if (peek() == '"') break;
      if (peek() == '\\') {
        if (!escape(out)) return false;
        continue;
      }
      out->append(text_.substr(at_, length));
      advance(length);
    }
    advance();
    return true;
  }

  bool escape(std::string* out) {
    const Position start = here();
    advance();
    const char letter = peek();
    advance();
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t found = kLetters.find(letter);
    if (letter != '\0' && found != std::string_view::npos) {
      *out += kMeanings[found];
      return true;
    }
    uint32_t code = 0;
    if (letter != 'u' || !hex(&code)) return bad_escape(start);
    if (code >= 0xdc00 && code < 0xe000) return bad_escape(start);
    if (code >= 0xd800 && code < 0xdc00) {
      uint32_t low = 0;
      if (!text_.substr(at_).starts_with("\\u")) return bad_escape(start);
      advance(2);
      if (!hex(&low) || low < 0xdc00 || low >= 0xe000) return bad_escape(start);
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(code, out);
    return true;
  }

  bool bad_escape(Position start) {
    return fail_at(start, "this escape means nothing in JSON",
                   R"(\" \\ \/ \b \f \n \r \t or \u and four hex digits)");
  }

  bool hex(uint32_t* code) {
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), *code, 16);
    advance(digits.size());
    return digits.size() == 4 && error == std::errc() && end == digits.data() + 4;
  }

  static void append_utf8(uint32_t code, std::string* out) {
    const auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xc0 | (code >> 6));
    } else {
      if (code < 0x10000) {
        put(0xe0 | (code >> 12));
      } else {
        put(0xf0 | (code >> 18));
        put(0x80 | ((code >> 12) & 0x3f));
      }
      put(0x80 | ((code >> 6) & 0x3f));
    }
    put(0x80 | (code & 0x3f));
  }

  size_t digits(size_t from) const {
    size_t end = from;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    return end - from;
  }

  bool number(Json* out) {
    size_t end = at_ + (peek() == '-' ? 1 : 0);
    const size_t whole = digits(end);
    if (whole == 0 || (whole > 1 && text_[end] == '0')) return bad_number();
    end += whole;
    bool integer = true;
    if (end < text_.size() && text_[end] == '.') {
      const size_t fraction = digits(++end);
      if (fraction == 0) return bad_number();
      end += fraction;
      integer = false;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      ++end;
      if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
      const size_t exponent = digits(end);
      if (exponent == 0) return bad_number();
      end += exponent;
      integer = false;
    }
    return convert(text_.substr(at_, end - at_), integer, out);
  }

  bool bad_number() {
    return fail("this is not a number of JSON", "a number such as 1, -2.5, 1e-8");
  }

  bool convert(std::string_view digits_text, bool integer, Json* out) {
    const char* first = digits_text.data();
    const char* last = first + digits_text.size();
    int64_t whole = 0;
    double real = 0;
    if (integer && std::from_chars(first, last, whole).ec == std::errc()) {
      *out = whole;
    } else if (uint64_t large = 0; integer && limits_.unsigned_64 &&
                                   std::from_chars(first, last, large).ec == std::errc()) {
      *out = large;
    } else if (std::from_chars(first, last, real).ec == std::errc()) {
      *out = real;
    } else {
      return fail(fmt::format("the number {} cannot be represented", digits_text.substr(0, 60)),
                  "a number that a double can hold");
    }
    advance(digits_text.size());
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  Places* places_;
  InputErrors* errors_;
  const JsonLimits& limits_;
  size_t values_ = 0;
  size_t places_bytes_ = 0;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t column_ = 1;
};

}  // namespace

bool read_json(std::string_view text, const std::string& file, Json* document, Places* places,
               InputErrors* errors, const JsonLimits& limits) {
  InputErrors found;
  Json whole;
  Reader reader(text, file, places, &found, limits);
  if (reader.document(&whole)) *document = std::move(whole);  // duplicate keys are in it once
  errors->insert(errors->end(), found.begin(), found.end());
  return found.empty();
}

Expected<PlacedJson> read_json_of(const SchemaNode& schema, std::string_view text,
                                  const std::string& file) {
  InputErrors errors;
  PlacedJson read{{}, Places(file)};
  if (read_json(text, file, &read.document, &read.places, &errors))
    add_errors(check_schema(schema, read.document), read.places, &errors);
  if (!errors.empty()) return errors;
  return read;
}

std::string problem_of(const nlohmann::json::exception& error) {
  constexpr int kFirstOfCalls = 304, kLastOfCalls = 315;  // "cannot use at() with null"
  if (error.id >= kFirstOfCalls && error.id <= kLastOfCalls)
    return "a value is of another type than is expected";
  const std::string words = error.what();  // "[json.exception.out_of_range.403] key ..."
  return shortened(words.substr(words.find(' ') + 1));
}

Expected<Json> parse_foreign_json(std::string_view text, const std::string& file,
                                  const std::string& what, const JsonLimits& limits) {
  Json document;
  InputErrors errors;
  if (read_json(text, file, &document, nullptr, &errors, limits)) return document;
  for (InputError& error : errors)
    if (error.allowed.empty()) error.allowed = what;
  return errors;
}

Json json_or_discarded(std::string_view text) {
  auto document = parse_foreign_json(text, "", "");
  return document ? std::move(document.value()) : Json(Json::value_t::discarded);
}

int64_t whole_number(const nlohmann::ordered_json& value) {
  using Json = nlohmann::ordered_json;
  if (!value.is_number_integer())
    throw Json::type_error::create(302, "a whole number is expected", &value);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    throw Json::out_of_range::create(406, "a whole number up to 2^63 - 1 is expected", &value);
  return value.get<int64_t>();
}

std::optional<int64_t> whole_of(double value) {
  if (!(std::abs(value) < 0x1p63) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace lockstep
