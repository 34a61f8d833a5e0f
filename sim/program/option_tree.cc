#include "sim/program/option_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

OptionWords words_of_option(const CLI::Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  if (words.positional) words.names = {option.get_single_name()};
  words.value = option.get_option_text();
  words.what = option.get_description();
  words.group = option.get_group();
  return words;
}

// Groups of options are apps without a name; each brings a --help of its own.
void add_options(const CLI::App& app, std::vector<OptionWords>* options) {
  for (const CLI::Option* option : app.get_options())
    if (!app.get_name().empty() || app.get_parent() == nullptr || option != app.get_help_ptr())
      options->push_back(words_of_option(*option));
  for (const CLI::App* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_options(*group, options);
}

VerbWords verb_of(const CLI::App& app, const std::string& name) {
  VerbWords verb{name, app.get_description(), app.get_footer(), {}, {}};
  add_options(app, &verb.options);
  for (const CLI::App* below : app.get_subcommands({}))
    if (!below->get_name().empty())
      verb.verbs.push_back(
          verb_of(*below, name.empty() ? below->get_name() : name + " " + below->get_name()));
  return verb;
}

}  // namespace

std::vector<std::string> OptionWords::choices() const {
  if (value.find('|') == std::string::npos) return {};
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find('|', begin), value.size());
    words.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool plain = std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return !word.empty() &&
           word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  });
  return plain ? words : std::vector<std::string>();
}

bool OptionWords::takes_path() const {
  return value.find("FILE") != std::string::npos || value.find("FOLDER") != std::string::npos ||
         (positional && value.empty());
}

VerbWords words_of(const CLI::App& app) { return verb_of(app, ""); }

std::vector<const VerbWords*> all_verbs(const VerbWords& root) {
  std::vector<const VerbWords*> all = {&root};
  for (const VerbWords& verb : root.verbs)
    for (const VerbWords* below : all_verbs(verb)) all.push_back(below);
  return all;
}

namespace {

// In single quotes, for every shell here.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

// "verify:--color|run:--color)": what bash looks at when it completes a value.
std::string bash_value_case(const VerbWords& verb, const OptionWords& option) {
  if (option.positional || option.is_flag()) return "";
  std::string pattern;
  for (const std::string& name : option.names)
    pattern += (pattern.empty() ? "" : "|") + shell_quoted(verb.name + ":" + name);
  std::string action = "return";  // nothing is known of it
  if (const auto choices = option.choices(); !choices.empty())
    action = fmt::format("_lockstep_words {}; return",
                         shell_quoted(fmt::format("{}", fmt::join(choices, " "))));
  else if (option.takes_path())
    action = "_lockstep_paths; return";
  return fmt::format("    {}) {} ;;\n", pattern, action);
}

// What may stand where no value is due: options, verbs, or what the positionals are.
std::string bash_verb_case(const VerbWords& verb) {
  std::vector<std::string> options, words;
  bool paths = false;
  for (const OptionWords& option : verb.options) {
    if (!option.positional) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      continue;
    }
    const auto choices = option.choices();
    words.insert(words.end(), choices.begin(), choices.end());
    paths = paths || option.takes_path();
  }
  for (const VerbWords& below : verb.verbs) words.push_back(last_word(below.name));
  return fmt::format("    {}) options={} words={} paths={} ;;\n", shell_quoted(verb.name),
                     shell_quoted(fmt::format("{}", fmt::join(options, " "))),
                     shell_quoted(fmt::format("{}", fmt::join(words, " "))), paths ? "yes" : "no");
}

// In _arguments, brackets and colons have meanings.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionWords& option) {
  if (const auto choices = option.choices(); !choices.empty())
    return fmt::format("({})", fmt::join(choices, " "));
  return option.takes_path() ? "_files" : " ";
}

std::string zsh_option(const OptionWords& option) {
  std::string text;
  if (option.positional)
    return " \\\n    " +
           shell_quoted(fmt::format("*:{}:{}", zsh_text(option.names.front()), zsh_action(option)));
  for (const std::string& name : option.names) {
    std::string spec = fmt::format("*{}[{}]", name, zsh_text(option.what));
    if (!option.is_flag())
      spec += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
    text += " \\\n    " + shell_quoted(spec);
  }
  return text;
}

std::string zsh_function(const std::string& name) {
  std::string text = "_lockstep";
  for (const char c : name.empty() ? "" : " " + name) text += c == ' ' ? '_' : c;
  return text;
}

std::string zsh_verb(const VerbWords& verb) {
  std::string text = zsh_function(verb.name) + "() {\n";
  std::string options;
  for (const OptionWords& option : verb.options) options += zsh_option(option);
  if (verb.verbs.empty()) return text + "  _arguments -s" + options + "\n}\n";
  text += "  local state\n  _arguments -C" + options +
          " \\\n    '1:verb:->verb' '*::argument:->argument'\n  case $state in\n    verb)\n"
          "      local -a verbs=(\n";
  for (const VerbWords& below : verb.verbs)
    text += "        " + shell_quoted(last_word(below.name) + ":" + zsh_text(below.what)) + "\n";
  text += "      )\n      _describe verb verbs ;;\n    argument)\n      case $words[1] in\n";
  for (const VerbWords& below : verb.verbs)
    text += fmt::format("        {}) {} ;;\n", last_word(below.name), zsh_function(below.name));
  return text + "      esac ;;\n  esac\n}\n";
}

// Holds where `verb` was typed and none of those below it.
std::string fish_condition(const VerbWords& verb) {
  std::string text;
  for (size_t begin = 0; begin < verb.name.size();) {
    const size_t end = std::min(verb.name.find(' ', begin), verb.name.size());
    text += (text.empty() ? "" : "; and ") + std::string("__fish_seen_subcommand_from ") +
            verb.name.substr(begin, end - begin);
    begin = end + 1;
  }
  if (verb.name.empty()) return "__fish_use_subcommand";
  for (const VerbWords& below : verb.verbs)
    text += "; and not __fish_seen_subcommand_from " + last_word(below.name);
  return text;
}

// fish quotes with backslashes in single quotes.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_option(const OptionWords& option, const std::string& start) {
  const auto choices = option.choices();
  const std::string words = fish_quoted(fmt::format("{}", fmt::join(choices, " ")));
  if (option.positional) return choices.empty() ? "" : start + " -f -a " + words + "\n";
  std::string text = start;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!choices.empty())
    text += " -x -a " + words;
  else if (!option.is_flag())
    text += option.takes_path() ? " -r -F" : " -x";
  return text + " -d " + fish_quoted(option.what) + "\n";
}

}  // namespace

std::string bash_completion(const VerbWords& root) {
  std::string names, values, verbs;
  for (const VerbWords* verb : all_verbs(root)) {
    if (!verb->name.empty()) names += (names.empty() ? "" : "|") + shell_quoted(verb->name);
    for (const OptionWords& option : verb->options) values += bash_value_case(*verb, option);
    verbs += bash_verb_case(*verb);
  }
  return fmt::format(R"(# bash completion of lockstep, made by `lockstep completion bash`
_lockstep_words() {{
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}}
_lockstep_paths() {{
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$word")
}}
_lockstep() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
  local verb='' options='' words='' paths=no i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{verb:+$verb }}${{COMP_WORDS[i]}}" in
    {})
      verb="${{verb:+$verb }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$verb:$before" in
{}  esac
  case "$verb" in
{}  esac
  if [[ $word == -* ]]; then
    _lockstep_words "$options"
  elif [[ -n $words ]]; then
    _lockstep_words "$words"
  elif [[ $paths == yes ]]; then
    _lockstep_paths
  fi
}}
complete -F _lockstep lockstep
)",
                     names, values, verbs);
}

std::string zsh_completion(const VerbWords& root) {
  std::string text =
      "#compdef lockstep\n# zsh completion of lockstep, made by `lockstep completion zsh`\n";
  for (const VerbWords* verb : all_verbs(root)) text += zsh_verb(*verb);
  return text +
         "if [ \"$funcstack[1]\" = _lockstep ]; then _lockstep; "
         "else compdef _lockstep lockstep; fi\n";
}

std::string fish_completion(const VerbWords& root) {
  std::string text = "# fish completion of lockstep, made by `lockstep completion fish`\n";
  for (const VerbWords* verb : all_verbs(root)) {
    const std::string start = "complete -c lockstep -n " + fish_quoted(fish_condition(*verb));
    for (const VerbWords& below : verb->verbs)
      text +=
          fmt::format("{} -f -a {} -d {}\n", start, last_word(below.name), fish_quoted(below.what));
    for (const OptionWords& option : verb->options) text += fish_option(option, start);
  }
  return text;
}

namespace {

// Backslashes, hyphens, and dots and quotes that begin a line mean something to roff.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string option_text(const OptionWords& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(option.positional ? "\\fI" + roff(name) + "\\fR"
                                      : "\\fB" + roff(name) + "\\fR");
  std::string text = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!option.value.empty() && !option.positional) text += " \\fI" + roff(option.value) + "\\fR";
  return text + "\n" + roff(option.what) + "\n";
}

std::string synopsis(const VerbWords& verb) {
  std::string text = "\\fBlockstep " + roff(verb.name) + "\\fR [\\fIoptions\\fR]";
  for (const OptionWords& option : verb.options)
    if (option.positional)
      text += " \\fI" + roff(option.value.empty() ? option.names.front() : option.value) + "\\fR";
  return text;
}

// The examples and exit codes stand as they are.
std::string footer_text(const std::string& footer) {
  return ".PP\n.nf\n" + roff(footer) + "\n.fi\n";
}

std::string verb_text(const VerbWords& verb) {
  std::string text = fmt::format(".SS \"{}\"\n{}\n.PP\n{}\n", roff("lockstep " + verb.name),
                                 roff(verb.what), synopsis(verb));
  for (const OptionWords& option : verb.options) text += option_text(option);
  return text + footer_text(verb.footer);
}

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
\fBXDG_STATE_HOME\fR
Evidence of runs lies in lockstep/runs below it (~/.local/state), and what failed last.
.TP
\fBGITHUB_ACTIONS\fR, \fBGITHUB_WORKSPACE\fR, \fBGITHUB_STEP_SUMMARY\fR
Where the first is true, annotations and a job summary are written.
.TP
\fBNO_COLOR\fR
No colour, unless it is asked for.
)";

}  // namespace

std::string man_page(const VerbWords& root, const std::string& version) {
  std::string text = fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\" \"User commands\"\n.SH NAME\nlockstep \\- {}\n"
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fIVERB\\fR [\\fIoptions\\fR]\n.SH OPTIONS\n",
      roff(version), roff(root.what));
  for (const OptionWords& option : root.options) text += option_text(option);
  text += ".SH VERBS\n";
  for (const VerbWords* verb : all_verbs(root))
    if (!verb->name.empty()) text += verb_text(*verb);
  return text + ".SH \"EXAMPLES AND EXIT CODES\"\n" + footer_text(root.footer) + kEnvironment;
}

}  // namespace lockstep
