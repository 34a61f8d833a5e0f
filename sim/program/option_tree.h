#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lockstep {

// What the option parser knows, as plain values: the source of shell completions and of the man
// page, so that neither can say anything else than --help does.

struct OptionWords {
  std::vector<std::string> names;  // "--quiet", "-q"; of a positional its one name
  std::string value;               // "FILE", "auto|always|never"; empty: a flag
  std::string what, group;
  bool positional = false;
  bool is_flag() const { return !positional && value.empty(); }
  // The words that the value must be one of; empty: any.
  std::vector<std::string> choices() const;
  // Is the value (or may it be) a path?
  bool takes_path() const;
};

struct VerbWords {
  std::string name;  // "scenario check"; of the program itself empty
  std::string what, footer;
  std::vector<OptionWords> options;
  std::vector<VerbWords> verbs;
};

VerbWords words_of(const CLI::App& app);

// The verb and all below it, itself first.
std::vector<const VerbWords*> all_verbs(const VerbWords& root);

// For bash, zsh and fish, to be sourced or put where these look for completions.
std::string bash_completion(const VerbWords& root);
std::string zsh_completion(const VerbWords& root);
std::string fish_completion(const VerbWords& root);

// lockstep(1), for man.
std::string man_page(const VerbWords& root, const std::string& version);

}  // namespace lockstep
