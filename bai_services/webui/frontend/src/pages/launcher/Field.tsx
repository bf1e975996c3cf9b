import { Form } from 'antd';
import type { ReactNode } from 'react';
import { problemOf, useLauncher } from './launcherContext';

interface FieldProps {
  /** Field of the request, such as `mounts.0.path`; its problem is shown at this control. */
  name: string;
  label: ReactNode;
  help?: ReactNode;
  /** The control, with the id `launch-NAME`. */
  children: ReactNode;
}

export const idOf = (name: string) => `launch-${name}`;

/** A labeled control of the launcher, with its help text and the problem of its value. */
export function Field({ name, label, help, children }: FieldProps) {
  const { preview } = useLauncher();
  const problem = problemOf(preview, name);
  return (
    <Form.Item
      layout="vertical"
      label={label}
      htmlFor={idOf(name)}
      {...(problem ? { validateStatus: 'error' as const, help: problem } : {})}
      {...(help ? { extra: help } : {})}
      style={{ marginBottom: 12 }}
    >
      {children}
    </Form.Item>
  );
}
