import { Result, type ResultProps } from 'antd';

/** A result that replaces the whole page; its title is the page's heading. */
export function PageResult({ title, ...props }: ResultProps) {
  return <Result {...props} title={<h1 className="bai-result-title">{title}</h1>} />;
}
