(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const byId = (id) => document.getElementById(id);
  const offers = read("bai-offers");
  const values = read("bai-values");
  const texts = read("bai-texts");
  const problems = read("bai-problems");
  const say = (key, places) =>
    (texts[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (places && name in places ? places[name] : whole));
  // Cores or GiB on a slider while no machine of the group has said what it has.
  const UNKNOWN_MOST = 8;
  const GIB = { "": 2 ** -30, k: 2 ** -20, m: 2 ** -10, g: 1, t: 2 ** 10, p: 2 ** 20 };

  function isShare(slot) { return slot.endsWith(".shares"); }
  // Amounts come as the API writes them; here memory is shown in GiB.
  function toNumber(slot, text) {
    if (text === undefined || text === null || text === "") { return 0; }
    const found = /^(-?[\d.]+)([kmgtp]?)/i.exec(String(text));
    if (!found) { return 0; }
    return slot === "mem" ? Number(found[1]) * GIB[found[2].toLowerCase()] : Number(found[1]);
  }
  function shown(slot, number) {
    const rounded = String(Math.round(number * 1000) / 1000);
    return slot === "mem" ? rounded + " GiB" : rounded;
  }
  function labelOf(slot) {
    if (slot === "cpu" || slot === "mem") { return say(slot); }
    const family = slot.split(".")[0];
    return isShare(slot) ? say("shares", { family }) : say("devices", { family });
  }
  function unitOf(slot) {
    if (slot === "cpu") { return say("cpu-unit"); }
    if (slot === "mem") { return "GiB"; }
    return isShare(slot) ? say("shares-unit") : say("devices-unit");
  }

  // The places of a slider: shares have none between 0 and the smallest, and only whole ones above 1.
  function placesOf(slot, least, most) {
    const places = [];
    const add = (number) => { if (number <= most + 1e-9 && !places.includes(number)) { places.push(number); } };
    if (isShare(slot)) {
      add(0);
      for (let hundredths = 5; hundredths <= 100; hundredths += 1) { add(hundredths / 100); }
      for (let whole = 2; whole <= most; whole += 1) { add(whole); }
    } else {
      const step = slot === "cpu" ? 0.5 : slot === "mem" ? (most <= 16 ? 0.25 : 1) : 1;
      const from = slot === "cpu" || slot === "mem" ? least || step : 0;
      add(from);
      for (let number = Math.floor(from / step) * step + step; number <= most + 1e-9; number += step) { add(number); }
      add(most);
    }
    return places.length ? places : [0];
  }
  function nearest(places, number) {
    let best = 0;
    places.forEach((place, at) => {
      if (Math.abs(place - number) < Math.abs(places[best] - number)) { best = at; }
    });
    return best;
  }

  function offer() {
    const project = byId("bai-project").value;
    const group = byId("bai-group").value;
    return offers.by_choice[project + "/" + group] || offers.by_choice[project + "/"] ||
      offers.by_choice[offers.project + "/"];
  }
  function fill(select, options, wanted) {
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    if (options.some(([value]) => value === wanted)) { select.value = wanted; }
  }

  function fillGroups(wanted) {
    const groups = (offers.by_choice[byId("bai-project").value + "/"] || offer()).resource_groups;
    const marked = groups.find((group) => group.is_default) || groups[0];
    fill(byId("bai-group"), groups.map((group) => [group.name, group.name]), wanted || (marked && marked.name));
    if (wanted && byId("bai-group").value !== wanted && marked) { byId("bai-group").value = marked.name; }
  }
  function fillImages(wanted) {
    const project = offers.projects.find((each) => each.name === byId("bai-project").value) || {};
    const images = offer().images;
    const usual = images.find((image) => image.name === project.default_image || (image.aliases || []).includes(project.default_image));
    const asked = images.find((image) => image.name === wanted || (image.aliases || []).includes(wanted));
    fill(byId("bai-image"), images.map((image) => [image.name, nameOf(image)]), (asked || usual || images[0] || {}).name);
  }
  function nameOf(image) {
    return image.aliases && image.aliases.length ? image.aliases[0] + " (" + image.name + ")" : image.name;
  }
  function image() {
    return offer().images.find((each) => each.name === byId("bai-image").value) || { min: {}, max: {}, apps: [] };
  }
  function fillPresets(wanted) {
    const presets = offer().presets || [];
    byId("bai-preset-part").hidden = presets.length === 0;
    fill(byId("bai-preset"), [["", say("custom")]].concat(presets.map((preset) => [
      preset.name,
      preset.name + " (" + Object.entries(preset.resources).map(([slot, text]) => labelOf(slot) + " " + shown(slot, toNumber(slot, text))).join(", ") + ")" +
        (preset.allocatable ? "" : " · " + say("preset-full")),
    ])), wanted || "");
  }
  function preset() {
    return (offer().presets || []).find((each) => each.name === byId("bai-preset").value);
  }

  // Cores and memory first. Whole devices are shares too: a second field only where it was asked for.
  function inOrder(limits, wanted) {
    const rank = (slot) => (slot === "cpu" ? 0 : slot === "mem" ? 1 : 2);
    const isDouble = (slot) => slot.endsWith(".device") && limits[slot.replace(".device", ".shares")] !== undefined;
    const inUse = Object.assign({}, wanted, (preset() || {}).resources);
    return Object.entries(limits)
      .filter(([slot]) => !isDouble(slot) || toNumber(slot, inUse[slot]) > 0)
      .sort(([one], [other]) => rank(one) - rank(other) || one.localeCompare(other));
  }
  function fillAmounts(wanted) {
    const box = byId("bai-amounts");
    const rows = [];
    for (const [slot, limit] of inOrder(offer().limits || {}, wanted)) {
      const isNeeded = slot === "cpu" || slot === "mem";
      const most = toNumber(slot, limit.max);
      if (most <= 0 && !isNeeded) { continue; }
      rows.push(amountRow(slot, limit, most || UNKNOWN_MOST, wanted));
    }
    box.replaceChildren(...rows);
    showWait();
  }
  function amountRow(slot, limit, most, wanted) {
    const row = byId("bai-amount-row").content.cloneNode(true).firstElementChild;
    const least = toNumber(slot, (image().min || {})[slot] || limit.min);
    const now = toNumber(slot, limit.now);
    const places = placesOf(slot, least, most);
    const [slider, number] = row.querySelectorAll("input");
    const id = "bai-amount-" + slot.replace(/\W/g, "-");
    const chosen = preset();
    const from = chosen ? chosen.resources[slot] : wanted[slot];
    const usual = slot === "cpu" || slot === "mem" ? Math.min(Math.max(least, 1), most) : 0;
    const start = from === undefined ? (chosen ? 0 : usual) : toNumber(slot, from);
    row.dataset.slot = slot;
    row.dataset.now = String(now);
    row.querySelector("label").textContent = labelOf(slot);
    row.querySelector("label").htmlFor = id;
    row.querySelector(".input-group-text").textContent = unitOf(slot);
    number.id = id;
    number.name = "resource:" + slot;
    number.min = slot === "cpu" || slot === "mem" ? String(least) : "0";
    if (toNumber(slot, limit.max) > 0) { number.max = String(most); }
    number.step = isShare(slot) ? "0.01" : slot === "cpu" || slot === "mem" ? "any" : "1";
    number.value = String(start);
    slider.min = "0";
    slider.max = String(places.length - 1);
    slider.step = "1";
    slider.value = String(nearest(places, start));
    slider.disabled = number.disabled = Boolean(chosen);
    const mark = row.querySelector(".bai-mark");
    const part = places.length > 1 ? nearest(places, Math.min(now, most)) / (places.length - 1) : 1;
    mark.style.left = "calc(.5rem + (100% - 1rem) * " + part + ")";
    const hint = row.querySelector(".form-text");
    hint.id = id + "-hint";
    hint.textContent = [say("now", { amount: shown(slot, now) })]
      .concat(toNumber(slot, limit.max) > 0 ? [say("most", { amount: shown(slot, most) })] : []).join(" · ");
    number.setAttribute("aria-describedby", hint.id);
    if (limit.enforcement) { showHeld(row.querySelector(".bai-held"), limit, number); }
    slider.addEventListener("input", () => { number.value = String(places[Number(slider.value)]); showWait(); });
    number.addEventListener("input", () => { slider.value = String(nearest(places, Number(number.value))); showWait(); });
    if (slot === "mem") {
      const unit = document.createElement("input");
      unit.type = "hidden";
      unit.name = number.name + ":unit";
      unit.value = "g";
      row.append(unit);
    }
    return row;
  }
  // What keeps sessions to their shares, and which shares devices in use still serve.
  function showHeld(line, limit, number) {
    const isFirm = !["none", "soft"].includes(limit.enforcement);
    const alike = limit.in_force ? [say("alike", { amounts: limit.in_force.join(", ") })] : [];
    line.id = number.id + "-held";
    line.hidden = false;
    line.querySelector("i").classList.add(isFirm ? "fa-lock" : "fa-unlock");
    line.querySelector("span").textContent = [say("held-" + limit.enforcement)].concat(alike).join(" ");
    number.setAttribute("aria-describedby", number.getAttribute("aria-describedby") + " " + line.id);
  }
  function amounts() {
    const found = {};
    document.querySelectorAll("#bai-amounts .bai-amount").forEach((row) => {
      const number = row.querySelector("input[type=number]").value;
      found[row.dataset.slot] = row.dataset.slot === "mem" ? number + "g" : number;
    });
    return found;
  }
  function showWait() {
    let waits = false;
    document.querySelectorAll("#bai-amounts .bai-amount").forEach((row) => {
      waits = waits || Number(row.querySelector("input[type=number]").value) > Number(row.dataset.now) + 1e-9;
    });
    byId("bai-wait").textContent = waits ? say("will-wait") : "";
    byId("bai-wait-sign").hidden = !waits;
  }

  function showNotices() {
    const group = offer().resource_groups.find((each) => each.name === byId("bai-group").value) || {};
    byId("bai-notices").replaceChildren(...(group.notices || []).map((notice) => {
      const line = document.createElement("div");
      line.className = "alert alert-info py-2 mb-1";
      line.textContent = notice;
      return line;
    }));
    const apps = image().apps || [];
    byId("bai-image-apps").textContent = apps.length ? say("apps", { apps: apps.join(", ") }) : "";
  }

  function folderName(folder) {
    const owner = window.jhdata && window.jhdata.user;
    return folder.owner && folder.owner !== owner ? say("of-owner", folder) : folder.name;
  }
  function addMount(mount, focus) {
    const folders = offer().vfolders || [];
    const row = byId("bai-mount-row").content.cloneNode(true).firstElementChild;
    const [folder, permission] = row.querySelectorAll("select");
    const [subpath, path, name] = row.querySelectorAll("input");
    const problem = row.querySelector(".bai-row-problem");
    const asked = folders.find((each) => each.id === mount.vfolder || each.name === mount.vfolder);
    fill(folder, [["", say("none")]].concat(folders.map((each) => [each.id, folderName(each)])), asked ? asked.id : "");
    // A folder of the last time that is gone stays, named, until the user decides.
    const isGone = Boolean(mount.vfolder) && !asked;
    const goneName = mount.name || mount.vfolder;
    if (isGone) {
      folder.add(new Option(goneName, mount.vfolder, true, true));
      addMount.count = (addMount.count || 0) + 1;
      problem.id = "bai-mount-problem-" + addMount.count;
    }
    subpath.value = mount.subpath || "";
    path.value = mount.path || "";
    function follow() {
      const chosen = folders.find((each) => each.id === folder.value);
      path.placeholder = chosen ? "/home/work/" + chosen.name : "/home/work/…";
      const isReadOnly = Boolean(chosen) && chosen.permission === "ro";
      name.value = chosen ? folderName(chosen) : folder.value ? goneName : "";
      const why = isGone && folder.value === mount.vfolder ? say("folder-gone", { name: goneName }) : "";
      folder.setCustomValidity(why);
      folder.classList.toggle("is-invalid", Boolean(why));
      if (why) { folder.setAttribute("aria-invalid", "true"); } else { folder.removeAttribute("aria-invalid"); }
      problem.textContent = why;
      if (why) { folder.setAttribute("aria-describedby", problem.id); } else { folder.removeAttribute("aria-describedby"); }
      permission.options[0].disabled = isReadOnly;
      if (isReadOnly) { permission.value = "ro"; }
    }
    permission.value = mount.permission || "rw";
    folder.addEventListener("change", follow);
    follow();
    byId("bai-mounts").append(finish(row, "bai-add-mount"));
    if (focus) { folder.focus(); }
  }
  function addVariable(name, value, focus, isSecret) {
    const row = byId("bai-variable-row").content.cloneNode(true).firstElementChild;
    const [key, text, box, secret] = row.querySelectorAll("input");
    key.value = name;
    text.value = value;
    box.checked = Boolean(isSecret);
    const follow = () => {
      secret.value = box.checked ? "1" : "";
      text.type = box.checked ? "password" : "text";
      text.required = box.checked;
      text.autocomplete = box.checked ? "new-password" : "off";
    };
    box.addEventListener("change", follow);
    follow();
    byId("bai-environ").append(finish(row, "bai-add-variable"));
    if (focus) { key.focus(); }
  }
  function finish(row, back) {
    row.querySelector("button").addEventListener("click", () => { row.remove(); byId(back).focus(); });
    return row;
  }
  // The manager checks it as well: it alone knows on which ports the image's own apps listen.
  function whyNotPorts(words) {
    const limits = offer().preopen_limits;
    const numbers = words.map((word) => (/^\d{1,5}$/.test(word) ? Number(word) : 0));
    const wrong = numbers.findIndex((number) => number < limits.lowest || number > limits.highest);
    if (wrong >= 0) { return say("port-range", { port: words[wrong], ...limits }); }
    const reserved = numbers.find((number) => limits.reserved.includes(number));
    if (reserved) { return say("port-reserved", { port: reserved }); }
    const twice = numbers.find((number, at) => numbers.indexOf(number) !== at);
    if (twice) { return say("port-twice", { port: twice }); }
    return numbers.length > limits.count ? say("port-count", { asked: numbers.length, most: limits.count }) : "";
  }
  function checkPorts() {
    const field = byId("bai-ports");
    const why = whyNotPorts(field.value.split(/[\s,]+/).filter(Boolean));
    field.setCustomValidity(why);
    const isRefused = Boolean(byId("bai-ports-refused"));
    field.classList.toggle("is-invalid", Boolean(why) || isRefused);
    if (why || isRefused) { field.setAttribute("aria-invalid", "true"); } else { field.removeAttribute("aria-invalid"); }
    byId("bai-ports-problem").textContent = isRefused ? "" : why;
  }
  function fillFolders() {
    const none = (offer().vfolders || []).length === 0;
    byId("bai-folders-hint").textContent = say(none ? "no-folders" : "folders-hint");
    byId("bai-add-mount").hidden = none;
    byId("bai-mounts").replaceChildren();
    (values.mounts || []).forEach((mount) => addMount(mount, false));
  }

  // What the last start was refused for, at the fields that this script makes; the others have it.
  function fieldOf(problem) {
    if (problem.section === "bai-amounts") {
      const row = Array.from(document.querySelectorAll("#bai-amounts .bai-amount")).find((each) => each.dataset.slot === problem.key);
      return row && { row, field: row.querySelector("input[type=number]") };
    }
    if (problem.section === "bai-mounts" && problem.part) {
      const row = document.querySelectorAll("#bai-mounts .bai-mount")[Number(problem.key)];
      return row && { row, field: row.querySelector("[name=mount_" + problem.part + "]") };
    }
    const row = Array.from(document.querySelectorAll("#bai-environ .bai-variable")).find((each) => each.querySelector("input").value === problem.key);
    return row && { row, field: row.querySelector("input") };
  }
  function showProblem(problem) {
    const line = document.createElement("div");
    line.className = "invalid-feedback d-block bai-row-problem";
    line.textContent = problem.text;
    const found = problem.key && fieldOf(problem);
    if (!found || !found.field) {
      // No such row is offered any more.
      if (problem.element !== problem.section) { line.id = problem.element; }
      line.tabIndex = -1;
      line.textContent = problem.label + ": " + problem.text;
      byId(problem.section).append(line);
      return;
    }
    const { row, field } = found;
    const isSaid = field.classList.contains("is-invalid");
    field.id = problem.element;
    field.classList.add("is-invalid");
    field.setAttribute("aria-invalid", "true");
    if (isSaid) { return; }
    line.id = field.id + "-refused";
    field.setAttribute("aria-describedby", (line.id + " " + (field.getAttribute("aria-describedby") || "")).trim());
    row.append(line);
  }
  // A field that is changed is as good as any until it is sent.
  function forget(event) {
    const field = event.target;
    const line = field.id && byId(field.id + "-refused");
    if (!line) { return; }
    line.remove();
    field.classList.remove("is-invalid");
    field.removeAttribute("aria-invalid");
    const names = (field.getAttribute("aria-describedby") || "").split(" ").filter((name) => name && name !== field.id + "-refused");
    if (names.length) { field.setAttribute("aria-describedby", names.join(" ")); } else { field.removeAttribute("aria-describedby"); }
  }
  function showProblems() {
    problems.filter((problem) => problem.section).forEach(showProblem);
    const form = document.querySelector(".bai-start");
    form.addEventListener("input", forget, true);
    form.addEventListener("change", forget, true);
    if (!problems.length) { return; }
    byId("bai-refused").addEventListener("click", (event) => {
      const link = event.target.closest("a");
      const field = link && byId(link.hash.slice(1));
      if (!field) { return; }
      event.preventDefault();
      if (byId("bai-more").contains(field)) { byId("bai-more").open = true; }
      field.scrollIntoView({ block: "center" });
      field.focus({ preventScroll: true });
    });
    const first = form.querySelector("[aria-invalid=true]");
    if (first) { first.focus(); }
  }

  // The Hub remembers the options of the last start: without this they come back at the next visit.
  async function isForgotten() {
    const headers = { "X-XSRFToken": window.jhdata.xsrf_token };
    try {
      return (await fetch(window.location.pathname, { method: "DELETE", headers })).ok;
    } catch {
      return false;
    }
  }

  function onProject() { fillGroups(byId("bai-group").value); onGroup(); fillFolders(); }
  function onGroup() {
    const kept = amounts();
    fillImages(byId("bai-image").value);
    fillPresets(byId("bai-preset").value);
    fillAmounts(kept);
    showNotices();
  }

  document.documentElement.lang = document.querySelector(".bai-start").lang;
  fillGroups(offers.resource_group);
  fillImages(values.image);
  fillPresets(values.preset);
  fillAmounts(values.resources || {});
  showNotices();
  fillFolders();
  if (values.shared_memory) {
    byId("bai-shm").value = String(toNumber("mem", values.shared_memory) * 1024);
  }
  byId("bai-environ").replaceChildren();
  Object.entries(values.environ || {}).forEach(([name, value]) => addVariable(name, value, false));
  (values.secret_environ || []).forEach((name) => addVariable(name, "", false, true));
  checkPorts();
  byId("bai-more").open = byId("bai-more").open || Boolean((values.secret_environ || []).length || values.shared_memory || values.name || values.preopen_ports || Object.keys(values.environ || {}).length);
  // A field that nobody sees cannot say what is wrong with it.
  byId("bai-more").addEventListener("invalid", () => { byId("bai-more").open = true; }, true);
  // What was filled in the last time, or in a form that was refused, is only an offer.
  byId("bai-reset").hidden = Object.keys(values).length === 0 || (Object.keys(values).length === 1 && (values.mounts || [0]).length === 0);
  byId("bai-reset").addEventListener("click", async () => {
    byId("bai-reset-failed").hidden = true;
    if (!(await isForgotten())) {
      byId("bai-reset-failed").hidden = false;
      return;
    }
    Object.keys(values).forEach((name) => { delete values[name]; });
    ["bai-name", "bai-shm", "bai-ports"].forEach((id) => { byId(id).value = ""; });
    byId("bai-environ").replaceChildren();
    byId("bai-project").value = offers.project;
    fillGroups("");
    fillImages("");
    fillPresets("");
    fillAmounts({});
    showNotices();
    fillFolders();
    checkPorts();
    byId("bai-reset").hidden = true;
    byId("bai-project").focus();
  });
  byId("bai-ports").addEventListener("input", checkPorts);
  byId("bai-project").addEventListener("change", onProject);
  byId("bai-group").addEventListener("change", onGroup);
  byId("bai-image").addEventListener("change", () => { const kept = amounts(); fillAmounts(kept); showNotices(); });
  byId("bai-preset").addEventListener("change", () => { const kept = amounts(); fillAmounts(kept); });
  byId("bai-add-mount").addEventListener("click", () => addMount({}, true));
  byId("bai-add-variable").addEventListener("click", () => addVariable("", "", true));
  showProblems();
})();
