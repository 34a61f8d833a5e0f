#include "sim/report/svg/figure.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::svg {

std::string svg_of(const Figure& figure) {
  Canvas canvas;
  canvas.text(kMargin, 34, "head", shortened(figure.title, 85));
  double y = 56;
  for (const auto& chart : figure.charts) {
    y = std::visit([&](const auto& one) { return draw(one, y, &canvas); }, chart);
    y += 18;
  }
  y = draw_notes(figure.notes, y - 12, &canvas);
  const std::string size = fmt::format("{} {}", px(kWidth), px(std::ceil(y + 10)));
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" class="ls" role="img" )"
             R"(width="{}" height="{}" viewBox="0 0 {}" aria-labelledby="ls-title ls-desc">)"
             "\n",
             px(kWidth), px(std::ceil(y + 10)), size) +
         fmt::format("<title id=\"ls-title\">{}</title>\n<desc id=\"ls-desc\">{}</desc>\n",
                     escaped(figure.title), escaped(figure.description)) +
         style_elements() + "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" +
         canvas.elements() + "</svg>\n";
}

}  // namespace lockstep::svg
