#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace lockstep::fuzz {
namespace {

struct Span {
  size_t begin = 0, end = 0;
  bool key = false;
  size_t size() const { return end - begin; }
};

bool is_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '-' || letter == '+' || letter == '.';
}

size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

bool is_key(std::string_view text, size_t end) {
  while (end < text.size() && (text[end] == ' ' || text[end] == '\n')) ++end;
  return end < text.size() && text[end] == ':';
}

// Values, containers among them, and keys. Anything may stand between them.
std::vector<Span> spans_of(std::string_view text) {
  std::vector<Span> spans;
  std::vector<size_t> open;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char letter = text[at];
    if (letter == '"') {
      at = end_of_string(text, at);
      spans.push_back({begin, at, is_key(text, at)});
    } else if (is_word(letter)) {
      while (at < text.size() && is_word(text[at])) ++at;
      spans.push_back({begin, at, false});
    } else {
      ++at;
      if (letter == '{' || letter == '[') open.push_back(begin);
      if ((letter == '}' || letter == ']') && !open.empty()) {
        spans.push_back({open.back(), at, false});
        open.pop_back();
      }
    }
  }
  return spans;
}

std::string repeated(std::string_view text, size_t times, size_t most) {
  std::string out;
  times = text.empty() ? 0 : std::min(times, most / text.size());
  out.reserve(times * text.size());
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

constexpr const char* kNumbers[] = {"0",
                                    "-0",
                                    "-1",
                                    "1",
                                    "2",
                                    "63",
                                    "64",
                                    "255",
                                    "256",
                                    "1000",
                                    "65535",
                                    "65536",
                                    "65537",
                                    "1000000",
                                    "99999999",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483648",
                                    "4294967295",
                                    "4294967296",
                                    "9007199254740992",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "-9223372036854775808",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "1e5",
                                    "1e18",
                                    "1e19",
                                    "1e308",
                                    "1e309",
                                    "-1e309",
                                    "5e-324",
                                    "1e-400",
                                    "0.1",
                                    "0.5",
                                    "1.0",
                                    "1e0000000000000000000001"};

std::string a_number(Dice* dice) { return dice->one_of(kNumbers); }

std::string a_letter(Dice* dice) {
  static constexpr const char* kLetters[] = {"\\u0000",
                                             "\\u001b[2J",
                                             "\\n::error::x",
                                             "\\r",
                                             "\\u009b",
                                             "\\u202e",
                                             "\\u2066",
                                             "\\u200b",
                                             "\\ud800",
                                             "\\udc00",
                                             "\\ud83d\\ude00",
                                             "\x1b[31m",
                                             "\xc2\x9b",
                                             "\xe2\x80\xae",
                                             "\xff",
                                             "\xc3",
                                             "\xf5\x80\x80\x80",
                                             "\xed\xa0\x80",
                                             "/",
                                             "..",
                                             "../../x",
                                             "%s",
                                             "{}",
                                             "<b>",
                                             "|",
                                             "`",
                                             "\\\\",
                                             "\\\"",
                                             "~0",
                                             "~1"};
  return dice->one_of(kLetters);
}

std::string a_value(Dice* dice, size_t most) {
  static constexpr const char* kOthers[] = {
      "null",   "true",     "false",  "\"\"", "[]",       "{}",         "[[]]",
      "[null]", "{\"\":0}", "\"a\"",  "nan",  "Infinity", "[0,-1,1e9]", "\"9223372036854775807\"",
      "\"-1\"", "\"/\"",    "\"inf\""};
  switch (dice->below(4)) {
    case 0:
      return dice->one_of(kOthers);
    case 1:
      return "\"" + repeated("x", drawn_count(dice), most / 2) + a_letter(dice) + "\"";
    default:
      return a_number(dice);
  }
}

// The value at the bottom of so many lists or objects; not all of them need an end.
std::string nested(std::string_view value, Dice* dice, size_t most) {
  const bool object = dice->one_in(2);
  const std::string_view begin = object ? "{\"a\":" : "[", end = object ? "}" : "]";
  const size_t depth =
      std::min(drawn_count(dice), (most - std::min(most, value.size())) / (begin.size() + 1));
  return repeated(begin, depth, most) + std::string(value) +
         (dice->one_in(8) ? "" : repeated(end, depth, most));
}

// `value` and then itself again and again, in a list or as members of other names.
std::string many(std::string_view value, bool is_member, Dice* dice, size_t most) {
  const size_t times = drawn_count(dice);
  std::string out(value);
  for (size_t i = 0; i < times && out.size() + value.size() + 32 < most; ++i) {
    out += is_member ? ",\"k" + std::to_string(i) + "\":0" : "," + std::string(value);
  }
  return out;
}

std::string in_string(std::string_view value, Dice* dice) {
  std::string out(value);
  if (out.size() >= 2 && out.front() == '"')
    out.insert(1 + dice->below(out.size() - 1), a_letter(dice));
  return out;
}

std::string replacement(std::string_view text, const std::vector<Span>& spans, const Span& span,
                        size_t most, Dice* dice) {
  const std::string_view old = text.substr(span.begin, span.size());
  const Span& other = dice->one_of(spans);
  const std::string_view elsewhere = text.substr(other.begin, other.size());
  switch (dice->below(span.key ? 4 : 9)) {
    case 0:
      return in_string(old, dice);
    case 1:
      return std::string(elsewhere);
    case 2:
      return "\"" + repeated("k", drawn_count(dice), most) + "\"";
    case 3:  // of a key: it comes twice
      return span.key ? std::string(old) + ":0," + std::string(old) : "";
    case 4:
      return nested(old, dice, most);
    case 5:
      return many(old, false, dice, most);
    case 6:
      return many(old, true, dice, most);
    default:
      return a_value(dice, most);
  }
}

}  // namespace

std::string mutated_json(std::string_view text, size_t most, uint64_t seed) {
  Dice dice(seed);
  const std::vector<Span> spans = spans_of(text);
  if (spans.empty()) return nested("0", &dice, most);
  const Span span = dice.one_of(spans);
  const size_t kept = text.size() - span.size();
  const size_t room = most > kept ? most - kept : 0;
  std::string out(text.substr(0, span.begin));
  out += std::string_view(replacement(text, spans, span, room, &dice)).substr(0, room);
  out += text.substr(span.end);
  return out.substr(0, most);
}

}  // namespace lockstep::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using lockstep::fuzz::Dice;
  // Of a long text libFuzzer's own changes alone, mostly: finding its values takes time.
  Dice dice(seed);
  if (dice.one_in(size > 50'000 ? 20 : 2)) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string out = lockstep::fuzz::mutated_json(text, most, dice.next());
    std::memcpy(data, out.data(), out.size());
    return out.size();
  }
  return LLVMFuzzerMutate(data, size, most);
}
