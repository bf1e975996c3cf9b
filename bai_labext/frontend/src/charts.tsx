import * as React from 'react';

import { Chart } from './chart';
import { bytes, cores, parseAmount } from './format';
import type { Model } from './model';
import { Sample, level } from './samples';
import type { Translate } from './i18n';
import type { Device } from './types';

interface Props {
  model: Model;
  t: Translate;
}

type Quantity = (sample: Sample) => number | null;

/** Charts of the session's usage over the last minutes. */
export function Charts({ model, t }: Props): React.ReactElement {
  const { samples, last } = model.series;
  if (!last) {
    return <p className="bai-Hint">{t('no-usage')}</p>;
  }
  const requested = model.session?.requested ?? {};
  const cpuLimit = Number(requested.cpu ?? 0);
  const memoryLimit = parseAmount(requested.mem ?? '0');
  const valuesOf = (quantity: Quantity): (number | null)[] => samples.map(quantity);
  const ofLimit = (used: string, limit: string): string => t('of-limit', { used, limit });
  return (
    <div className="bai-Charts">
      <Chart
        label={t('cpu')}
        current={ofLimit(cores(last.cpu), cores(cpuLimit))}
        values={valuesOf(sample => sample.cpu)}
        limit={cpuLimit}
      />
      <Chart
        label={t('memory')}
        current={ofLimit(bytes(last.memory), bytes(memoryLimit))}
        values={valuesOf(sample => sample.memory)}
        limit={memoryLimit}
        level={level(last.memory, memoryLimit)}
      />
      {(model.session?.devices ?? []).map((device, index) => (
        <DeviceCharts key={device.id} model={model} t={t} device={device} index={index} />
      ))}
      <Chart
        label={t('network')}
        current={rates('in-out', last.received, last.sent, t)}
        values={valuesOf(sample => sample.received)}
        second={valuesOf(sample => sample.sent)}
      />
      <Chart
        label={t('io')}
        current={rates('read-written', last.read, last.written, t)}
        values={valuesOf(sample => sample.read)}
        second={valuesOf(sample => sample.written)}
      />
    </div>
  );
}

/** Charts of a device's memory and utilization; "unknown" if the driver does not report them. */
function DeviceCharts(props: Props & { device: Device; index: number }): React.ReactElement {
  const { model, t, device, index } = props;
  const { samples, last } = model.series;
  const used = last?.devices[device.id];
  const memory = used?.memory ?? null;
  const utilization = used?.utilization ?? null;
  const limit = used?.limit || (device.memory_bytes ?? 0);
  const isOnly = (model.session?.devices.length ?? 0) < 2;
  const number = isOnly ? '' : ` ${index + 1}`;
  return (
    <>
      <Chart
        label={t('device-memory') + number}
        current={t('of-limit', {
          used: memory === null ? t('unknown') : bytes(memory),
          limit: limit ? bytes(limit) : t('unknown')
        })}
        values={samples.map(sample => sample.devices[device.id]?.memory ?? null)}
        limit={limit}
        level={level(memory ?? 0, limit)}
      />
      <Chart
        label={t('device-utilization') + number}
        current={utilization === null ? t('unknown') : `${Math.round(utilization)} %`}
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
