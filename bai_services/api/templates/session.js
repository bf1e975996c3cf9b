(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const byId = (id) => document.getElementById(id);
  const texts = read("bai-texts");
  const api = read("bai-api");
  let session = read("bai-session-data");
  const translate = (key, values) =>
    (texts[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (values && name in values ? values[name] : whole));
  const path = api + "/sessions/" + encodeURIComponent(session.id);
  const POLL_MILLIS = 5000;
  const ACTIVITY_POLL_MILLIS = 30000;
  const STEPS = ["PENDING", "SCHEDULED", "PREPARING", "PREPARED", "RUNNING"];
  const ENDED = ["TERMINATED", "CANCELLED", "ERROR"];
  const BADGES = { RUNNING: "success", ERROR: "danger", TERMINATED: "secondary", CANCELLED: "secondary", TERMINATING: "warning" };
  let lastStatus = "";
  let hasLog = false;

  function element(tag, text, className) {
    const created = document.createElement(tag);
    if (text !== undefined) { created.textContent = text; }
    if (className) { created.className = className; }
    return created;
  }
  function formatTime(text) {
    return text ? new Date(text).toLocaleString(document.querySelector(".bai-session").lang) : "";
  }
  function formatSlots(amounts) {
    return Object.entries(amounts || {}).map(([slot, amount]) => slot + " " + amount).join(", ");
  }
  const isEnded = () => ENDED.includes(session.status);
  const isBeforeRun = () => ["PENDING", "SCHEDULED", "PREPARING"].includes(session.status);

  function showHead() {
    byId("bai-name").textContent = session.name;
    const badge = byId("bai-status");
    badge.textContent = translate(session.status);
    badge.className = "badge align-middle text-bg-" + (BADGES[session.status] || "info");
    // For pending and ended sessions, sections below show the reason.
    byId("bai-info").textContent = isEnded() || session.status === "PENDING" ? "" : session.status_info || "";
    const open = byId("bai-open");
    open.hidden = session.status !== "RUNNING";
    open.href = session.url;
    const stop = byId("bai-stop");
    stop.hidden = isEnded() || session.status === "TERMINATING";
    stop.textContent = translate(isBeforeRun() ? "cancel" : "stop");
    if (lastStatus !== session.status) {
      byId("bai-said").textContent = translate("status-now", { status: translate(session.status) });
      lastStatus = session.status;
    }
  }

  function showSteps() {
    // The status of an ended session does not tell which steps it reached; its times do.
    let reached = STEPS.indexOf(session.status);
    if (reached < 0) { reached = session.started_at ? 4 : session.scheduled_at ? 1 : 0; }
    const items = STEPS.map((status, at) => {
      const item = element("li", translate(status));
      const isLast = session.status === "RUNNING" || reached === 4;
      if (at < reached || (at === reached && (isLast || STEPS.indexOf(session.status) < 0))) {
        item.className = "bai-done";
        item.append(element("span", " (" + translate("step-done") + ")", "visually-hidden"));
      } else if (at === reached) {
        item.className = "bai-now";
        item.setAttribute("aria-current", "step");
      }
      return item;
    });
    if (STEPS.indexOf(session.status) < 0) {
      const end = element("li", translate(session.status), session.status === "ERROR" ? "bai-bad" : "bai-now");
      end.setAttribute("aria-current", "step");
      items.push(end);
    }
    byId("bai-steps").replaceChildren(...items);
  }

  function showPending() {
    const isPending = session.status === "PENDING";
    byId("bai-waiting").hidden = !isPending;
    if (!isPending) { return; }
    byId("bai-position").textContent = session.queue_position ? translate("queue-position", { position: session.queue_position }) : "";
    byId("bai-checks").replaceChildren(...(session.reasons || []).map((reason) => {
      const item = element("li", undefined, reason.passed ? "bai-ok" : "bai-not");
      const icon = element("span", reason.passed ? "✓" : "✗", "bai-sign");
      icon.setAttribute("role", "img");
      icon.setAttribute("aria-label", translate(reason.passed ? "passed" : "failed"));
      item.append(icon, element("span", reason.message || reason.check));
      return item;
    }));
  }

  function showProgress() {
    const isPreparing = session.status === "PREPARING" || session.status === "PREPARED" || session.status === "SCHEDULED";
    byId("bai-progress").hidden = !isPreparing;
    if (!isPreparing) { return; }
    const progress = session.progress || {};
    const percent = session.status === "PREPARED" ? 100 : Math.max(0, Math.min(100, Number(progress.percent) || 0));
    byId("bai-progress-text").textContent = progress.message || translate(session.status);
    const bar = byId("bai-bar");
    bar.setAttribute("aria-valuenow", String(Math.round(percent)));
    bar.firstElementChild.style.width = percent + "%";
    bar.firstElementChild.textContent = percent ? Math.round(percent) + " %" : "";
  }

  function showFacts(list, pairs) {
    const items = [];
    pairs.forEach(([name, value]) => {
      if (value !== undefined && value !== null && value !== "") {
        items.push(element("dt", translate(name)), element("dd", String(value)));
      }
    });
    list.replaceChildren(...items);
  }
  function showDetails() {
    showFacts(byId("bai-facts"), [
      ["owner", session.owner], ["project", session.project], ["resource-group", session.resource_group],
      ["image", session.image], ["requested", formatSlots(session.requested)], ["shared-memory", session.shared_memory],
      ["created-at", formatTime(session.created_at)], ["started-at", formatTime(session.started_at)], ["terminated-at", formatTime(session.terminated_at)],
    ]);
  }

  function showIdleness() {
    const isLimited = session.status === "RUNNING" && Boolean(session.idle_ends_at);
    byId("bai-alive").hidden = !isLimited;
    byId("bai-idle").hidden = !isLimited;
    if (!isLimited) { return; }
    const left = Math.max(0, Math.ceil((Date.parse(session.idle_ends_at) - Date.now()) / 1000));
    const parts = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
    const clock = parts.map((part) => String(part).padStart(2, "0")).join(":");
    byId("bai-idle").textContent = translate("idle-ends-in", { time: clock });
  }

  function showRows(id, rows) {
    byId(id).hidden = rows.length === 0;
    byId(id).querySelector("tbody").replaceChildren(...rows.map((cells) => {
      const row = element("tr");
      cells.forEach((cell) => {
        const td = element("td");
        td.append(...[].concat(cell));
        row.append(td);
      });
      return row;
    }));
  }
  function showTables() {
    showRows("bai-allocations", (session.allocations || []).map((allocation) => {
      const cell = [allocation.device || ""];
      if (allocation.is_simulated) { cell.push(" ", element("span", translate("simulated"), "badge text-bg-warning")); }
      const device = (session.devices || []).find((one) => one.id === allocation.device && one.enforcement);
      if (device && allocation.slot.endsWith(".shares")) { cell.push(element("div", translate("enforcement-" + device.enforcement), "form-text mt-0")); }
      return [allocation.slot, allocation.amount, cell, allocation.agent];
    }));
    showRows("bai-folders", (session.mounts || []).map((mount) => [[mount.vfolder, mount.subpath].filter(Boolean).join("/"), mount.path, translate(mount.permission)]));
    byId("bai-notices").replaceChildren(...(session.notices || []).map((notice) => element("div", notice, "alert alert-info py-2")));
  }

  async function showEnd() {
    byId("bai-end").hidden = !isEnded();
    if (!isEnded()) { return; }
    showFacts(byId("bai-end-facts"), [
      ["reason", session.status_info], ["exit-code", session.exit_code],
      ["result", session.result === "undefined" ? "" : session.result],
    ]);
    if (hasLog) { return; }
    hasLog = true;
    try {
      const response = await fetch(path + "/logs", { headers: { Accept: "application/json" } });
      const content = response.ok ? await response.json() : {};
      const lines = String(content.log || content.text || "").trimEnd().split("\n").slice(-200).join("\n");
      byId("bai-log").textContent = lines || translate("log-empty");
      byId("bai-log").scrollTop = byId("bai-log").scrollHeight;
    } catch (error) {
      hasLog = false;
    }
  }

  function show() {
    showHead();
    showSteps();
    showPending();
    showProgress();
    showDetails();
    showIdleness();
    showTables();
    showEnd();
  }

  function showProblem(text) {
    byId("bai-problem").textContent = text;
    byId("bai-problem").hidden = !text;
  }
  let isReading = false;
  let isStale = false;
  async function refresh() {
    if (isReading) { isStale = true; return; }
    isReading = true;
    try {
      const response = await fetch(path, { headers: { Accept: "application/json" } });
      if (response.status === 401) { window.location.reload(); return; }
      if (!response.ok) { throw new Error(String(response.status)); }
      session = await response.json();
      showProblem("");
      show();
    } catch (error) {
      showProblem(translate("offline"));
    } finally {
      isReading = false;
    }
    if (isStale) { isStale = false; refresh(); }
  }

  // Events are notifications without content: fetch the session after each. Poll while there is no
  // event stream.
  let poll = null;
  function startPolling() { if (poll === null) { poll = window.setInterval(() => { if (!isEnded()) { refresh(); } }, POLL_MILLIS); } }
  function stopPolling() { if (poll !== null) { window.clearInterval(poll); poll = null; } }
  function listen() {
    if (!window.EventSource) { startPolling(); return; }
    const events = new EventSource(api + "/events?session=" + encodeURIComponent(session.id));
    const changed = () => { refresh(); if (isEnded()) { events.close(); } };
    events.onopen = () => { stopPolling(); refresh(); };
    events.onmessage = changed;
    ["session", "status", "reasons", "progress", "name"].forEach((kind) => events.addEventListener(kind, changed));
    events.onerror = () => {
      startPolling();
      if (events.readyState === EventSource.CLOSED && !isEnded()) { window.setTimeout(listen, POLL_MILLIS); }
    };
  }

  byId("bai-stop").addEventListener("click", () => {
    const isCancel = isBeforeRun();
    byId("bai-question").textContent = translate(isCancel ? "cancel-question" : "stop-question");
    byId("bai-sure").textContent = translate(isCancel ? "yes-cancel" : "yes-stop");
    byId("bai-dialog").showModal();
  });
  async function send(button, method, url, body) {
    button.disabled = true;
    try {
      const response = await fetch(url, {
        method,
        headers: { Accept: "application/json", "Content-Type": "application/json", "X-XSRFToken": window.jhdata.xsrf_token },
        body,
      });
      if (!response.ok) {
        const content = await response.json().catch(() => ({}));
        showProblem(translate("failed-request", { message: content.message || response.status }));
        return;
      }
      await refresh();
    } catch (error) {
      showProblem(translate("offline"));
    } finally {
      button.disabled = false;
    }
  }
  byId("bai-alive").addEventListener("click", () => send(byId("bai-alive"), "POST", path + "/activity", "{}"));
  byId("bai-keep").addEventListener("click", () => byId("bai-dialog").close());
  byId("bai-sure").addEventListener("click", () => {
    byId("bai-dialog").close();
    send(byId("bai-stop"), "DELETE", path);
  });

  document.documentElement.lang = document.querySelector(".bai-session").lang;
  show();
  if (!isEnded()) { listen(); }
  window.setInterval(showIdleness, 1000);
  // Activity causes no events, so poll for a new idle deadline.
  window.setInterval(() => { if (session.idle_ends_at) { refresh(); } }, ACTIVITY_POLL_MILLIS);
})();
