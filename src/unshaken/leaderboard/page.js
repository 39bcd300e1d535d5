"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), table = button.closest("table");
    const column = [...heading.parentElement.children].indexOf(heading);
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
    const value = (entry) => entry.rows[0].cells[column].dataset.value;
    const compare = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === ""); // what is not told comes last either way
      return sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
    };
    table.append(...[...table.tBodies].sort(compare)); // an entry is a body of its own: its row and its details
  });
}
