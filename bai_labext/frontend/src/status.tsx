import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { bytes, parseAmount } from './format';
import type { Model } from './model';
import { level } from './samples';
import type { Translate } from './texts';

/** Share and memory of the device in use; the session's own memory where it has none. */
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
    const share = session.devices.map(device => device.share).join(' + ');
    const name = hasDevice ? this.t('device-share', { share }) : this.t('memory');
    const shown = (amount: number | null): string =>
      amount === null ? this.t('unknown') : bytes(amount);
    return (
      <button
        type="button"
        className={`bai-Status bai-mod-${this.model.trouble ? 'away' : level(used ?? 0, limit)}`}
        title={this.t('status-hint')}
        onClick={this.open}
      >
        {name} {this.t('of-limit', { used: shown(used), limit: shown(limit || null) })}
      </button>
    );
  }
}
