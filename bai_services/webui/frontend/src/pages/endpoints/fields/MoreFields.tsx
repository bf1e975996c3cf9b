import type { ReactNode } from 'react';
import { Collapse } from 'antd';

interface MoreFieldsProps {
  title: string;
  children: ReactNode;
}

/** Fields that few users need, which are shown on request. */
export const MoreFields = ({ title, children }: MoreFieldsProps) => (
  <Collapse
    size="small"
    style={{ marginBottom: 16 }}
    // `forceRender`, so that the form contains the fields while they are hidden.
    items={[{ key: 'more', label: title, children, forceRender: true }]}
  />
);
