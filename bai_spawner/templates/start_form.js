(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const byId = (id) => document.getElementById(id);
  const offers = read("bai-offers");
  const values = read("bai-values");
  const texts = read("bai-texts");
  const refusedFields = read("bai-refused-fields");
  const translate = (key, values) =>
    (texts[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (values && name in values ? values[name] : whole));
  // Maximum of the sliders for cores and GiB while no agent of the group has reported its capacity.
  const DEFAULT_MAX = 8;
  const GIB_BY_UNIT = { "": 2 ** -30, k: 2 ** -20, m: 2 ** -10, g: 1, t: 2 ** 10, p: 2 ** 20 };

  function isShare(slot) { return slot.endsWith(".shares"); }
  // Converts a quantity of the API, such as "512m", to the number in the form: GiB for memory.
  function toNumber(slot, text) {
    if (text === undefined || text === null || text === "") { return 0; }
    const found = /^(-?[\d.]+)([kmgtp]?)/i.exec(String(text));
    if (!found) { return 0; }
    return slot === "mem" ? Number(found[1]) * GIB_BY_UNIT[found[2].toLowerCase()] : Number(found[1]);
  }
  function format(slot, number) {
    const rounded = String(Math.round(number * 1000) / 1000);
    return slot === "mem" ? rounded + " GiB" : rounded;
  }
  function labelOf(slot) {
    if (slot === "cpu" || slot === "mem") { return translate(slot); }
    const family = slot.split(".")[0];
    return isShare(slot) ? translate("shares", { family }) : translate("devices", { family });
  }
  function unitOf(slot) {
    if (slot === "cpu") { return translate("cpu-unit"); }
    if (slot === "mem") { return "GiB"; }
    return isShare(slot) ? translate("shares-unit") : translate("devices-unit");
  }

  // Returns the values of a slider. Shares of a GPU are 0, 0.05 to 1 in steps of 0.01, then whole numbers.
  function sliderValues(slot, min, max) {
    const values = [];
    const add = (number) => { if (number <= max + 1e-9 && !values.includes(number)) { values.push(number); } };
    if (isShare(slot)) {
      add(0);
      for (let hundredths = 5; hundredths <= 100; hundredths += 1) { add(hundredths / 100); }
      for (let whole = 2; whole <= max; whole += 1) { add(whole); }
    } else {
      const step = slot === "cpu" ? 0.5 : slot === "mem" ? (max <= 16 ? 0.25 : 1) : 1;
      const first = slot === "cpu" || slot === "mem" ? min || step : 0;
      add(first);
      for (let number = Math.floor(first / step) * step + step; number <= max + 1e-9; number += step) { add(number); }
      add(max);
    }
    return values.length ? values : [0];
  }
  function nearestIndex(values, number) {
    let best = 0;
    values.forEach((value, index) => {
      if (Math.abs(value - number) < Math.abs(values[best] - number)) { best = index; }
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
    const named = (name) => images.find((image) => image.name === name || (image.aliases || []).includes(name));
    const selected = named(wanted) || named(project.default_image) || images[0] || {};
    fill(byId("bai-image"), images.map((image) => [image.name, nameOf(image)]), selected.name);
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
    fill(byId("bai-preset"), [["", translate("custom")]].concat(presets.map((preset) => [
      preset.name,
      preset.name + " (" + Object.entries(preset.resources).map(([slot, text]) => labelOf(slot) + " " + format(slot, toNumber(slot, text))).join(", ") + ")" +
        (preset.allocatable ? "" : " · " + translate("preset-full")),
    ])), wanted || "");
  }
  function preset() {
    return (offer().presets || []).find((each) => each.name === byId("bai-preset").value);
  }

  // Returns the limits to show, cores and memory first. If shares of a device family are offered, the slot of its
  // whole devices has a field only if the last start or the preset uses it.
  function shownLimits(limits, wanted) {
    const rank = (slot) => (slot === "cpu" ? 0 : slot === "mem" ? 1 : 2);
    const isRedundant = (slot) => slot.endsWith(".device") && limits[slot.replace(".device", ".shares")] !== undefined;
    const requested = Object.assign({}, wanted, (preset() || {}).resources);
    return Object.entries(limits)
      .filter(([slot]) => !isRedundant(slot) || toNumber(slot, requested[slot]) > 0)
      .sort(([one], [other]) => rank(one) - rank(other) || one.localeCompare(other));
  }
  function fillAmounts(wanted) {
    const box = byId("bai-amounts");
    const rows = [];
    for (const [slot, limit] of shownLimits(offer().limits || {}, wanted)) {
      const isRequired = slot === "cpu" || slot === "mem";
      const max = toNumber(slot, limit.max);
      if (max <= 0 && !isRequired) { continue; }
      rows.push(amountRow(slot, limit, max || DEFAULT_MAX, wanted));
    }
    box.replaceChildren(...rows);
    showWait();
  }
  function amountRow(slot, limit, max, wanted) {
    const row = byId("bai-amount-row").content.cloneNode(true).firstElementChild;
    const min = toNumber(slot, (image().min || {})[slot] || limit.min);
    const now = toNumber(slot, limit.now);
    const steps = sliderValues(slot, min, max);
    const [slider, number] = row.querySelectorAll("input");
    const id = "bai-amount-" + slot.replace(/\W/g, "-");
    const chosen = preset();
    const requested = chosen ? chosen.resources[slot] : wanted[slot];
    const initial = slot === "cpu" || slot === "mem" ? Math.min(Math.max(min, 1), max) : 0;
    const start = requested === undefined ? (chosen ? 0 : initial) : toNumber(slot, requested);
    row.dataset.slot = slot;
    row.dataset.now = String(now);
    row.querySelector("label").textContent = labelOf(slot);
    row.querySelector("label").htmlFor = id;
    row.querySelector(".input-group-text").textContent = unitOf(slot);
    number.id = id;
    number.name = "resource:" + slot;
    number.min = slot === "cpu" || slot === "mem" ? String(min) : "0";
    if (toNumber(slot, limit.max) > 0) { number.max = String(max); }
    number.step = isShare(slot) ? "0.01" : slot === "cpu" || slot === "mem" ? "any" : "1";
    number.value = String(start);
    slider.min = "0";
    slider.max = String(steps.length - 1);
    slider.step = "1";
    slider.value = String(nearestIndex(steps, start));
    slider.disabled = number.disabled = Boolean(chosen);
    const mark = row.querySelector(".bai-mark");
    const fraction = steps.length > 1 ? nearestIndex(steps, Math.min(now, max)) / (steps.length - 1) : 1;
    mark.style.left = "calc(.5rem + (100% - 1rem) * " + fraction + ")";
    const hint = row.querySelector(".form-text");
    hint.id = id + "-hint";
    hint.textContent = [translate("now", { amount: format(slot, now) })]
      .concat(toNumber(slot, limit.max) > 0 ? [translate("most", { amount: format(slot, max) })] : []).join(" · ");
    number.setAttribute("aria-describedby", hint.id);
    if (limit.enforcement) { showEnforcement(row.querySelector(".bai-held"), limit, number); }
    slider.addEventListener("input", () => { number.value = String(steps[Number(slider.value)]); showWait(); });
    number.addEventListener("input", () => { slider.value = String(nearestIndex(steps, Number(number.value))); showWait(); });
    if (slot === "mem") {
      const unit = document.createElement("input");
      unit.type = "hidden";
      unit.name = number.name + ":unit";
      unit.value = "g";
      row.append(unit);
    }
    return row;
  }
  // Shows the enforcement level of shares, and which shares the devices in use still offer.
  function showEnforcement(line, limit, number) {
    const isEnforced = !["none", "soft"].includes(limit.enforcement);
    const offered = limit.in_force?.length ? [translate("uniform-shares", { amounts: limit.in_force.join(", ") })] : [];
    line.id = number.id + "-held";
    line.hidden = false;
    line.querySelector("i").classList.add(isEnforced ? "fa-lock" : "fa-unlock");
    line.querySelector("span").textContent = [translate("enforcement-" + limit.enforcement)].concat(offered).join(" ");
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
    byId("bai-wait").textContent = waits ? translate("will-be-queued") : "";
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
    byId("bai-image-apps").textContent = apps.length ? translate("apps", { apps: apps.join(", ") }) : "";
  }

  function folderName(folder) {
    const owner = window.jhdata && window.jhdata.user;
    return folder.owner && folder.owner !== owner ? translate("of-owner", folder) : folder.name;
  }
  function addMount(mount, focus) {
    const folders = offer().vfolders || [];
    const row = byId("bai-mount-row").content.cloneNode(true).firstElementChild;
    const [folder, permission] = row.querySelectorAll("select");
    const [subpath, path, name] = row.querySelectorAll("input");
    const problem = row.querySelector(".bai-row-problem");
    const selected = folders.find((each) => each.id === mount.vfolder || each.name === mount.vfolder);
    fill(folder, [["", translate("none")]].concat(folders.map((each) => [each.id, folderName(each)])), selected ? selected.id : "");
    // Keep the row of a folder that was used last time but no longer exists, until the user changes or removes it.
    const isGone = Boolean(mount.vfolder) && !selected;
    const goneName = mount.name || mount.vfolder;
    if (isGone) {
      folder.add(new Option(goneName, mount.vfolder, true, true));
      addMount.count = (addMount.count || 0) + 1;
      problem.id = "bai-mount-problem-" + addMount.count;
    }
    subpath.value = mount.subpath || "";
    path.value = mount.path || "";
    function onFolder() {
      const chosen = folders.find((each) => each.id === folder.value);
      path.placeholder = chosen ? "/home/work/" + chosen.name : "/home/work/…";
      const isReadOnly = Boolean(chosen) && chosen.permission === "ro";
      name.value = chosen ? folderName(chosen) : folder.value ? goneName : "";
      const why = isGone && folder.value === mount.vfolder ? translate("folder-gone", { name: goneName }) : "";
      folder.setCustomValidity(why);
      folder.classList.toggle("is-invalid", Boolean(why));
      if (why) { folder.setAttribute("aria-invalid", "true"); } else { folder.removeAttribute("aria-invalid"); }
      problem.textContent = why;
      if (why) { folder.setAttribute("aria-describedby", problem.id); } else { folder.removeAttribute("aria-describedby"); }
      permission.options[0].disabled = isReadOnly;
      if (isReadOnly) { permission.value = "ro"; }
    }
    permission.value = mount.permission || "rw";
    folder.addEventListener("change", onFolder);
    onFolder();
    byId("bai-mounts").append(withRemoveButton(row, "bai-add-mount"));
    if (focus) { folder.focus(); }
  }
  function addVariable(name, value, focus, isSecret) {
    const row = byId("bai-variable-row").content.cloneNode(true).firstElementChild;
    const [key, text, box, secret] = row.querySelectorAll("input");
    key.value = name;
    text.value = value;
    box.checked = Boolean(isSecret);
    const onSecret = () => {
      secret.value = box.checked ? "1" : "";
      text.type = box.checked ? "password" : "text";
      text.required = box.checked;
      text.autocomplete = box.checked ? "new-password" : "off";
    };
    box.addEventListener("change", onSecret);
    onSecret();
    byId("bai-environ").append(withRemoveButton(row, "bai-add-variable"));
    if (focus) { key.focus(); }
  }
  function withRemoveButton(row, focusedAfterwards) {
    row.querySelector("button").addEventListener("click", () => { row.remove(); byId(focusedAfterwards).focus(); });
    return row;
  }
  // Returns the problem with the ports, or "". The manager checks again: only it knows the ports of the image's apps.
  function portsProblem(words) {
    const limits = offer().preopen_limits;
    const numbers = words.map((word) => (/^\d{1,5}$/.test(word) ? Number(word) : 0));
    const wrong = numbers.findIndex((number) => number < limits.lowest || number > limits.highest);
    if (wrong >= 0) { return translate("port-range", { port: words[wrong], ...limits }); }
    const reserved = numbers.find((number) => limits.reserved.includes(number));
    if (reserved) { return translate("port-reserved", { port: reserved }); }
    const twice = numbers.find((number, at) => numbers.indexOf(number) !== at);
    if (twice) { return translate("port-twice", { port: twice }); }
    return numbers.length > limits.count ? translate("port-count", { asked: numbers.length, most: limits.count }) : "";
  }
  function checkPorts() {
    const field = byId("bai-ports");
    const problem = portsProblem(field.value.split(/[\s,]+/).filter(Boolean));
    field.setCustomValidity(problem);
    const isRefused = Boolean(byId("bai-ports-refused"));
    field.classList.toggle("is-invalid", Boolean(problem) || isRefused);
    if (problem || isRefused) { field.setAttribute("aria-invalid", "true"); } else { field.removeAttribute("aria-invalid"); }
    byId("bai-ports-problem").textContent = isRefused ? "" : problem;
  }
  function fillFolders() {
    const none = (offer().vfolders || []).length === 0;
    byId("bai-folders-hint").textContent = translate(none ? "no-folders" : "folders-hint");
    byId("bai-add-mount").hidden = none;
    byId("bai-mounts").replaceChildren();
    (values.mounts || []).forEach((mount) => addMount(mount, false));
  }

  // Returns the row and the form field of a refused field in a list, whose rows this script creates.
  function findInRows(refused) {
    if (refused.section === "bai-amounts") {
      const row = Array.from(document.querySelectorAll("#bai-amounts .bai-amount")).find((each) => each.dataset.slot === refused.key);
      return row && { row, field: row.querySelector("input[type=number]") };
    }
    if (refused.section === "bai-mounts" && refused.part) {
      const row = document.querySelectorAll("#bai-mounts .bai-mount")[Number(refused.key)];
      return row && { row, field: row.querySelector("[name=mount_" + refused.part + "]") };
    }
    const row = Array.from(document.querySelectorAll("#bai-environ .bai-variable")).find((each) => each.querySelector("input").value === refused.key);
    return row && { row, field: row.querySelector("input") };
  }
  function showRefused(refused) {
    const line = document.createElement("div");
    line.className = "invalid-feedback d-block bai-row-problem";
    line.textContent = refused.problem;
    const found = refused.key && findInRows(refused);
    if (!found || !found.field) {
      // The form has no such row, for example because the resource slot is no longer offered.
      if (refused.element !== refused.section) { line.id = refused.element; }
      line.tabIndex = -1;
      line.textContent = refused.label + ": " + refused.problem;
      byId(refused.section).append(line);
      return;
    }
    const { row, field } = found;
    const hasProblem = field.classList.contains("is-invalid");
    field.id = refused.element;
    field.classList.add("is-invalid");
    field.setAttribute("aria-invalid", "true");
    if (hasProblem) { return; }
    line.id = field.id + "-refused";
    field.setAttribute("aria-describedby", (line.id + " " + (field.getAttribute("aria-describedby") || "")).trim());
    row.append(line);
  }
  // Removes the problem of a refused field when the user changes the field.
  function clearProblem(event) {
    const field = event.target;
    const line = field.id && byId(field.id + "-refused");
    if (!line) { return; }
    line.remove();
    field.classList.remove("is-invalid");
    field.removeAttribute("aria-invalid");
    const names = (field.getAttribute("aria-describedby") || "").split(" ").filter((name) => name && name !== field.id + "-refused");
    if (names.length) { field.setAttribute("aria-describedby", names.join(" ")); } else { field.removeAttribute("aria-describedby"); }
  }
  // Shows the problems of rows; the template shows those of the other fields.
  function showAllRefused() {
    refusedFields.filter((refused) => refused.section).forEach(showRefused);
    const form = document.querySelector(".bai-start");
    form.addEventListener("input", clearProblem, true);
    form.addEventListener("change", clearProblem, true);
    if (!refusedFields.length) { return; }
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

  // Deletes the options of the last start, which the Hub stores and would show again; returns whether it succeeded.
  async function deleteStoredOptions() {
    const headers = { "X-XSRFToken": window.jhdata.xsrf_token };
    try {
      return (await fetch(window.location.pathname, { method: "DELETE", headers })).ok;
    } catch {
      return false;
    }
  }

  function onProject() { fillGroups(byId("bai-group").value); onGroup(); fillFolders(); }
  function onGroup() {
    const current = amounts();
    fillImages(byId("bai-image").value);
    fillPresets(byId("bai-preset").value);
    fillAmounts(current);
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
  // Open the section if one of its fields is invalid, so that the browser can show the message.
  byId("bai-more").addEventListener("invalid", () => { byId("bai-more").open = true; }, true);
  // Offer a reset if the form is prefilled with the values of the last start.
  byId("bai-reset").hidden = Object.keys(values).length === 0 || (Object.keys(values).length === 1 && (values.mounts || [0]).length === 0);
  byId("bai-reset").addEventListener("click", async () => {
    byId("bai-reset-failed").hidden = true;
    if (!(await deleteStoredOptions())) {
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
  byId("bai-image").addEventListener("change", () => { fillAmounts(amounts()); showNotices(); });
  byId("bai-preset").addEventListener("change", () => fillAmounts(amounts()));
  byId("bai-add-mount").addEventListener("click", () => addMount({}, true));
  byId("bai-add-variable").addEventListener("click", () => addVariable("", "", true));
  showAllRefused();
})();
