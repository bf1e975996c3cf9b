import type { ReactNode } from 'react';

interface PageResultProps {
  status: '403' | '404' | '500';
  title: string;
  help?: string;
  children: ReactNode;
}

/** A result that replaces the whole page; its title is the page's heading. */
export const PageResult = ({ status, title, help, children }: PageResultProps) => (
  <div className="bai-result">
    <div className="bai-result-status" aria-hidden>
      {status}
    </div>
    <h1 className="bai-result-title">{title}</h1>
    {help}
    <div className="bai-result-body">{children}</div>
  </div>
);
