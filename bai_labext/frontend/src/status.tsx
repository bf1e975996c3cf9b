import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { bytes, fraction, parseAmount, usedOf } from './format';
import type { Model } from './model';
import { level } from './samples';
import type { Translate } from './i18n';

const GPU_FAMILIES = new Set(['cuda', 'rocm']);

/** Status bar item: share and used memory of the devices; without devices, the session's memory. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly model: Model,
    private readonly t: Translate,
    private readonly open: () => void
  ) {
    super();
  }

  protected override render(): React.ReactElement {
    return <UseSignal signal={this.model.changed}>{() => this.text()}</UseSignal>;
  }

  private text(): React.ReactElement {
    const { session, series } = this.model;
    const last = series.last;
    if (!session || !last) {
      return <></>;
    }
    const hasDevice = session.devices.length > 0;
    const used = hasDevice ? last.deviceMemory : last.memory;
    const limit = hasDevice ? last.deviceLimit : parseAmount(session.requested.mem ?? '0');
    const share = session.devices.map(device => fraction(device.share)).join(' + ');
    const name = hasDevice ? `${this.deviceName()} ${share}` : this.t('memory');
    return (
      <button
        type="button"
        className={`bai-Status bai-mod-${this.model.trouble ? 'disconnected' : level(used ?? 0, limit)}`}
        title={this.t(hasDevice ? 'status-hint-device' : 'status-hint')}
        onClick={this.open}
      >
        {name} · {this.memory(used, limit)}
      </button>
    );
  }

  private deviceName(): string {
    const families = new Set(this.model.session?.devices.map(device => device.family));
    return [...families].every(family => GPU_FAMILIES.has(family)) ? 'GPU' : this.t('device');
  }

  private memory(used: number | null, limit: number): string {
    if (!limit) {
      return used === null ? this.t('unknown') : bytes(used);
    }
    const [usedText, limitText] = usedOf(used ?? 0, limit);
    const shown = used === null ? this.t('unknown') : usedText;
    return this.t('of-limit', { used: shown, limit: limitText });
  }
}
