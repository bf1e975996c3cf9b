import type { ReactNode } from 'react';

export type TagColor = 'green' | 'red' | 'orange' | 'blue' | 'cyan' | 'geekblue';

interface TagProps {
  /** Without a colour, the tag is grey. */
  color?: TagColor | undefined;
  children: ReactNode;
}

/** A tag with the look of AntD's, whose tag takes a hundred times as long to render in a list. */
export const Tag = ({ color, children }: TagProps) => (
  <span className={color ? `bai-tag bai-tag-${color}` : 'bai-tag'}>{children}</span>
);
