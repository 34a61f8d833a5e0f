#include "sim/report/html/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "sim/report/document.h"

namespace lockstep {
namespace {

// The class of the verdict in the style; the words are the verb's.
const char* verdict_class(int exit_code) {
  switch (exit_code) {
    case kExitPass:
      return "pass";
    case kExitFail:
      return "fail";
    default:
      return "inconclusive";
  }
}

// The last line: each verb ends with its answer.
std::string answer_of(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

std::string script(const std::string& attributes, std::string_view text) {
  return fmt::format("<script{}>{}</script>\n", attributes, text);
}

std::string head(const HtmlPage& page, const std::string& answer, const std::string& style,
                 const std::string& d3, const std::string& ours) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {} "
      "{}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>lockstep {}: {}</title>\n"
      "<link rel=\"icon\" href=\"data:,\">\n<style>{}</style>\n</head>\n",
      csp_hash(d3), csp_hash(ours), csp_hash(style), xml_text(page.verb), xml_text(answer), style);
}

std::string body(const HtmlPage& page, const std::string& text, const std::string& answer) {
  return fmt::format(
      "<body>\n<header>\n<h1>lockstep {}</h1>\n<p id=\"verdict\" class=\"{}\">{}</p>\n</header>\n"
      "<main>\n<section aria-labelledby=\"said\"><h2 id=\"said\">Output</h2>\n"
      "<pre id=\"text\" tabindex=\"0\">{}</pre></section>\n"
      "<noscript><p>Tables and the timeline need JavaScript; the text above is the whole "
      "verdict.</p></noscript>\n<div id=\"report\" data-command=\"{}\"></div>\n</main>\n",
      xml_text(page.verb), verdict_class(page.exit_code), xml_text(answer), xml_text(text),
      xml_attribute(page.command));
}

}  // namespace

std::string json_in_script(std::string_view json) {
  std::string text;
  text.reserve(json.size() + json.size() / 16);
  for (size_t i = 0; i < json.size(); ++i) {
    const char one = json[i];
    const std::string_view rest = json.substr(i, 3);
    if (one == '<' || one == '>' || one == '&') {
      text += fmt::format("\\u{:04x}", static_cast<int>(one));
    } else if (rest == "\u2028" || rest == "\u2029") {
      text += rest == "\u2028" ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += one;
    }
  }
  return text;
}

std::string without_colors(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const size_t begin = text.find("\x1b[");
    plain += text.substr(0, begin);
    if (begin == std::string_view::npos) break;
    size_t end = begin + 2;
    while (end < text.size() && (text[end] == ';' || (text[end] >= '0' && text[end] <= '9'))) ++end;
    const bool color = end < text.size() && text[end] == 'm';
    if (!color) plain += "\x1b[";
    text.remove_prefix(color ? end + 1 : begin + 2);
  }
  return plain;
}

std::string csp_hash(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const int done =
      EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr);
  LOCKSTEP_CHECK(done == 1, "libcrypto computes no SHA-256");
  std::array<unsigned char, 4 * (EVP_MAX_MD_SIZE / 3 + 1) + 1> encoded{};
  const int size = EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(length));
  return "'sha256-" + std::string(encoded.begin(), encoded.begin() + size) + "'";
}

std::string html_page(const HtmlPage& page) {
  const std::string text = printable_lines(without_colors(page.text));
  const std::string answer = answer_of(text);
  const std::string style = page_style(), ours = page_script();
  const std::string d3 = fmt::format("/*\nD3 7.9.0\n{}*/\n{}", page_d3_license(), page_d3());
  return head(page, answer, style, d3, ours) + body(page, text, answer) +
         script(R"( type="application/json" id="result")", json_in_script(page.result)) +
         script(R"( type="application/json" id="timelines")",
                json_in_script(fmt::format("[{}]", fmt::join(page.timelines, ",")))) +
         script("", d3) + script("", ours) + "</body>\n</html>\n";
}

}  // namespace lockstep
