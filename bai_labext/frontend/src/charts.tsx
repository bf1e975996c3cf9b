import * as React from 'react';

import { Chart } from './chart';
import { bytes, cores, parseAmount } from './format';
import type { Model } from './model';
import { Sample, level } from './samples';
import type { Translate } from './texts';
import type { Device } from './types';

interface Props {
  model: Model;
  t: Translate;
}

type Pick = (sample: Sample) => number | null;

/** Charts of the session's usage over the last minutes. */
export function Charts({ model, t }: Props): React.ReactElement {
  const { samples, last } = model.series;
  if (!last) {
    return <p className="bai-Hint">{t('no-usage')}</p>;
  }
  const requested = model.session?.requested ?? {};
  const cpuLimit = Number(requested.cpu ?? 0);
  const memoryLimit = parseAmount(requested.mem ?? '0');
  const of = (pick: Pick): (number | null)[] => samples.map(pick);
  const ofLimit = (used: string, limit: string): string => t('of-limit', { used, limit });
  return (
    <div className="bai-Charts">
      <Chart
        label={t('cpu')}
        current={ofLimit(cores(last.cpu), cores(cpuLimit))}
        values={of(sample => sample.cpu)}
        limit={cpuLimit}
      />
      <Chart
        label={t('memory')}
        current={ofLimit(bytes(last.memory), bytes(memoryLimit))}
        values={of(sample => sample.memory)}
        limit={memoryLimit}
        level={level(last.memory, memoryLimit)}
      />
      {(model.session?.devices ?? []).map((device, index) => (
        <DeviceCharts key={device.id} model={model} t={t} device={device} index={index} />
      ))}
      <Chart
        label={t('network')}
        current={rates('in-out', last.received, last.sent, t)}
        values={of(sample => sample.received)}
        second={of(sample => sample.sent)}
      />
      <Chart
        label={t('io')}
        current={rates('read-written', last.read, last.written, t)}
        values={of(sample => sample.read)}
        second={of(sample => sample.written)}
      />
    </div>
  );
}

/** Charts of a device's memory and utilization; both are unknown without a driver. */
function DeviceCharts(props: Props & { device: Device; index: number }): React.ReactElement {
  const { model, t, device, index } = props;
  const { samples, last } = model.series;
  const used = last?.devices[device.id];
  const memory = used?.memory ?? null;
  const load = used?.utilization ?? null;
  const limit = used?.limit || (device.memory_bytes ?? 0);
  // Several devices are numbered.
  const isOnly = (model.session?.devices.length ?? 0) < 2;
  const name = isOnly ? '' : ` ${index + 1}`;
  return (
    <>
      <Chart
        label={t('device-memory') + name}
        current={t('of-limit', {
          used: memory === null ? t('unknown') : bytes(memory),
          limit: limit ? bytes(limit) : t('unknown')
        })}
        values={samples.map(sample => sample.devices[device.id]?.memory ?? null)}
        limit={limit}
        level={level(memory ?? 0, limit)}
      />
      <Chart
        label={t('device-utilization') + name}
        current={load === null ? t('unknown') : `${Math.round(load)} %`}
        values={samples.map(sample => sample.devices[device.id]?.utilization ?? null)}
        limit={100}
      />
    </>
  );
}

function rates(key: string, first: number | null, second: number | null, t: Translate): string {
  if (first === null && second === null) {
    return t('unknown');
  }
  return t(key, { first: `${bytes(first ?? 0)}/s`, second: `${bytes(second ?? 0)}/s` });
}
