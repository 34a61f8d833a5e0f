#include "sim/report/markdown.h"

#include "sim/report/kill_matrix.h"
#include "sim/report/markdown_text.h"
#include "sim/report/terminal.h"

namespace lockstep {

std::string verify_markdown(const ResultDocument& document) {
  std::string text =
      markdown_text(head_line(document)) + "\n" + results_table(document.runs).markdown();
  const std::string kills = kill_summary(document.runs);
  if (!kills.empty())
    text += "\n" + kill_matrix(document.runs).markdown() + "\n" + markdown_text(kills);
  return text + "\n" + markdown_text(answer_line(document));
}

}  // namespace lockstep
