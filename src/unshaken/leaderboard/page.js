"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
    const column = [...heading.parentElement.children].indexOf(heading);
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value ?? "";
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      const numbers = a !== "" && b !== "" && !isNaN(a) && !isNaN(b);
      return numbers ? a - b : a.localeCompare(b);
    };
    const rows = [...body.rows].sort(compare);
    body.append(...(down ? rows.reverse() : rows));
  });
}
