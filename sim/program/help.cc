#include "sim/program/help.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const std::pair<const char*, const char*> shown[] = {
        {"FILE", "FILE|FOLDER ..."}, {"SET", "mnist|cifar10"},
        {"FOLDER", "FOLDER"},        {"SHELL", "bash|zsh|fish"},
        {"OPERATION", "OPERATION"},  {"PATH", "PATH ..."},
        {"COMMAND", "-- COMMAND"},   {"B", "A B"},
        {"RUNS", "FOLDER ..."}};
    std::string text = "Usage: " + name;
    if (!verbs(app).empty()) text += " VERB";
    text += " [options]";
    for (const auto& [positional, words] : shown)
      if (app->get_option_no_throw(positional) != nullptr) text += std::string(" ") + words;
    return text + "\n\n";
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }  // in the usage
  std::string make_group(std::string group, bool positional,
                         std::vector<const CLI::Option*> options) const override {
    return group + "\n" + lines(options, positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::string text;
    for (const CLI::App* group : app->get_subcommands({}))  // without a name: a group of options
      if (group->get_name().empty())
        text += fmt::format("\n{}\n{}", group->get_group(),
                            lines(group->get_options([&](const CLI::Option* option) {
                              return option != group->get_help_ptr();
                            }),
                                  false));
    return text + (verbs(app).empty() ? "" : "\nVerbs\n" + verbs(app));
  }
  std::string make_footer(const CLI::App* app) const override { return app->get_footer() + "\n"; }

 private:
  static std::string verbs(const CLI::App* app) {
    std::string text;
    for (const CLI::App* verb : app->get_subcommands({}))
      if (!verb->get_name().empty())
        text += fmt::format("  {:<17}{}\n", verb->get_name(), verb->get_description());
    return text;
  }
  std::string lines(const std::vector<const CLI::Option*>& options, bool positional) const {
    std::string text;
    for (const CLI::Option* option : options) text += make_option(option, positional);
    return text;
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> own_help() {
  auto help = std::make_shared<Help>();
  help->column_width(29);
  return help;
}

}  // namespace lockstep
