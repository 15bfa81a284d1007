"use strict";
// Everything but dropping a file works without this script.
for (const input of document.querySelectorAll("[data-upload]")) {
  input.addEventListener("change", async () => {
    const file = input.files[0], status = input.parentElement.querySelector("[role=status]");
    if (!file) return;
    status.classList.remove("bad");
    status.textContent = `Reading ${file.name} …`;
    const query = new URLSearchParams({ name: file.name });
    for (const setting of document.querySelectorAll("[data-setting]")) query.set(setting.name, setting.value);
    try {
      const answer = await fetch(`${input.dataset.upload}?${query}`, { method: "PUT", body: file });
      const said = await answer.json();
      if (answer.ok) { location.assign(said.next); return; }
      status.textContent = said.error;
    } catch {
      status.textContent = "The studio did not take the file. Is it still running, and the file not too large?";
    }
    status.classList.add("bad");
    input.value = "";
  });
}
for (const search of document.querySelectorAll("[data-filter]")) {
  search.addEventListener("input", () => {
    const text = search.value.toLowerCase();
    for (const row of search.closest("fieldset, form").querySelectorAll("tr[data-name], li[data-name]"))
      row.hidden = !row.dataset.name.includes(text);
  });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
}
for (const element of document.querySelectorAll(".script")) element.hidden = false;
for (const button of document.querySelectorAll("[data-use]"))
  button.addEventListener("click", () => {
    for (const box of document.querySelectorAll("tr:not([hidden]) [name^=use-]:enabled"))
      box.checked = Boolean(button.dataset.use);
  });
for (const form of document.querySelectorAll("form[data-busy]"))
  form.addEventListener("submit", () => { form.querySelector("[role=status]").textContent = form.dataset.busy; });
const slider = document.getElementById("slider");
if (slider) {
  const stops = [...document.querySelectorAll("[name=stop]")];
  const show = (stop) => {
    slider.value = stop.value;
    slider.setAttribute("aria-valuetext", `epsilon ${stop.dataset.epsilon}`);
    document.getElementById("epsilon").textContent = stop.dataset.epsilon;
  };
  slider.addEventListener("input", () => { stops[slider.value].checked = true; show(stops[slider.value]); });
  for (const stop of stops) stop.addEventListener("change", () => show(stop));
  slider.parentElement.hidden = false;
  show(stops.find((stop) => stop.checked));
}
const progress = document.getElementById("progress");
if (progress) {
  const look = async () => {
    try {
      const said = await (await fetch("progress")).json();
      if (said.state !== "running") { location.reload(); return; }
      progress.textContent = `${said.progress}, ${said.seconds} seconds`;
    } catch { progress.textContent = "The studio does not answer any more."; }
    setTimeout(look, 1000);
  };
  setTimeout(look, 500);
}
